// The verdict on a whole yard against the one on each of its nodes, over random nodes that come, change and go.
#include <iostream>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "operator/placement/constraints.h"
#include "operator/placement/live_yard.h"
#include "tests/operator/placement/seed.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  std::string Of(std::initializer_list<const char*> words) {
    return words.begin()[Below(static_cast<int64_t>(words.size()))];
  }

 private:
  std::mt19937_64 random_;
};

std::string NodeName(Dice& dice) { return "n" + std::to_string(dice.Below(12)); }
// The last is a label that no node has.
std::string Key(Dice& dice) { return dice.Of({"pool", "cores", "kubernetes.io/hostname", "nobody.has/it"}); }
std::string Value(Dice& dice) { return dice.Of({"a", "b", "", "8", "64", "n3", "n7"}); }
std::string Effect(Dice& dice) { return dice.Of({"NoSchedule", "NoExecute", "PreferNoSchedule"}); }

api::NodeSnapshot RandomNode(Dice& dice) {
  api::NodeSnapshot node = MakeNode(NodeName(dice), 8);
  node.labels["kubernetes.io/hostname"] = node.name;
  if (dice.OneIn(2)) node.labels["pool"] = Value(dice);
  if (dice.OneIn(2)) node.labels["cores"] = Value(dice);
  for (int64_t i = dice.Below(3); i > 0; --i) {
    node.taints.push_back({dice.Of({"team", "maintenance", "nvidia.com/gpu"}), dice.Of({"", "a", "b"}), Effect(dice)});
  }
  return node;
}

api::NodeRequirement RandomRequirement(Dice& dice, std::string key) {
  api::NodeRequirement requirement{
      std::move(key), dice.Of({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Is"}), {}};
  for (int64_t i = dice.Below(4); i > 0; --i) requirement.values.push_back(Value(dice));
  return requirement;
}

api::NodeConstraints RandomConstraints(Dice& dice) {
  api::NodeConstraints constraints;
  for (int64_t i = dice.Below(3); i > 0; --i) constraints.node_selector[Key(dice)] = Value(dice);
  for (int64_t i = dice.Below(3); i > 0; --i) {
    api::NodeTerm& term = constraints.affinity.emplace_back();
    for (int64_t j = dice.Below(3); j > 0; --j) term.expressions.push_back(RandomRequirement(dice, Key(dice)));
    if (dice.OneIn(3)) term.fields.push_back(RandomRequirement(dice, dice.OneIn(4) ? "spec.other" : "metadata.name"));
  }
  for (int64_t i = dice.Below(3); i > 0; --i) {
    constraints.tolerations.push_back({dice.Of({"team", "maintenance", ""}),
                                       dice.Of({"Exists", "Equal", ""}),
                                       dice.Of({"", "a"}),
                                       dice.OneIn(2) ? "" : Effect(dice),
                                       {}});
    if (dice.OneIn(4)) constraints.tolerations.back().seconds = 300;
  }
  return constraints;
}

TEST(Judge, SaysOfAYardWhatIsSaidOfEachNode) {
  const uint64_t seed = Seed();
  Dice dice(seed);
  LiveYard live(kRackOptions);
  int64_t allowed = 0, barred = 0;
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE("TRAINYARD_SEED=" + std::to_string(seed) + " round " + std::to_string(round));
    for (int64_t i = dice.Below(3); i > 0; --i) {
      if (dice.OneIn(6)) {
        live.RemoveNode(NodeName(dice));
      } else {
        live.SetNode(std::make_shared<const api::NodeSnapshot>(RandomNode(dice)));
      }
    }
    const Yard& yard = live.Current();
    const api::NodeConstraints constraints = RandomConstraints(dice);
    const std::vector<uint32_t> bars = Judge(yard, constraints);
    ASSERT_EQ(bars.size(), yard.nodes().size());
    std::map<uint32_t, std::string> words;
    for (size_t i = 0; i < bars.size(); ++i) {
      const std::string why = WhyBarred(yard.nodes()[i], constraints);
      ASSERT_EQ(bars[i] == 0, Allowed(yard.nodes()[i], constraints)) << yard.nodes()[i].name << " " << why;
      ASSERT_EQ(words.try_emplace(bars[i], why).first->second, why) << yard.nodes()[i].name;
      ++(bars[i] == 0 ? allowed : barred);
    }
  }
  std::cout << allowed << " allowed, " << barred << " barred" << std::endl;
  EXPECT_GT(allowed, 5000);
  EXPECT_GT(barred, 5000);
}

}  // namespace
}  // namespace trainyard::placement
