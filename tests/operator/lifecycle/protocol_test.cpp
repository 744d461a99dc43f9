// The gang protocol when nodes do not do what their books say: refused admission, penalties and their decay, rivals,
// trouble under a running gang, and ranks over the replacement of a pod.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "operator/api/json.h"
#include "operator/lifecycle/penalties.h"
#include "operator/placement/topology.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr Milliseconds kPeriod{600'000};

std::vector<std::string> NodesOf(const Scenario& s) {
  std::vector<std::string> nodes;
  if (!s.status().placement) return nodes;
  for (const api::PlacedNode& placed : s.status().placement->nodes) nodes.push_back(placed.node);
  return nodes;
}

// To pods that are un-gated and bound, of which the first is then refused by its kubelet.
void StartAndRefuse(Scenario& s, const std::string& reason) {
  s.Steps();
  ASSERT_FALSE(s.in.pods.empty()) << s.status().reason;
  for (api::PodSnapshot& pod : s.in.pods) pod.node = pod.pinned_node;
  s.in.pods[0].phase = api::PodPhase::kFailed;
  s.in.pods[0].reason = reason;
  s.in.pods[0].message = "Pod was rejected: no more devices";
}

TEST(Refusal, TakesTheGangBackAndCostsNothing) {
  for (const char* reason : {"UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfnvidia.com/gpu",
                             "NodeAffinity", "NodePorts", "TaintToleration", "TopologyAffinityError"}) {
    Scenario s;
    StartAndRefuse(s, reason);
    const std::string refused_by = s.in.pods[0].node;
    const Decision d = s.Step();
    ASSERT_TRUE(s.status().stop) << reason;
    EXPECT_EQ(s.status().stop->reason, "Undo") << reason;
    EXPECT_EQ(Scenario::Count(d, Action::Kind::kDeleteAllPods), 1) << reason;
    EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0) << reason;
    EXPECT_THAT(s.status().excluded_nodes, ElementsAre(Pair(refused_by, 1))) << reason;
    EXPECT_THAT(s.status().reason, HasSubstr("node rank 0 on " + refused_by + ": " + reason));
    s.Reap();
    s.Steps();
    ASSERT_TRUE(s.status().retry_after) << "it waits a little";
    s.in.now = *s.status().retry_after;
    s.Start();
    EXPECT_EQ(s.Phase(), "Running") << reason;
    EXPECT_EQ(s.status().attempt, 2);
    EXPECT_NE(NodesOf(s)[0], refused_by) << "another node is free";
  }
}

TEST(Refusal, OfAllNodesIsTriedForEverLaterAndLater) {
  Scenario s;
  Milliseconds last{0};
  for (int attempt = 1; attempt <= 6; ++attempt) {
    StartAndRefuse(s, "OutOfnvidia.com/gpu");
    s.Step();
    s.Reap();
    s.Steps();
    EXPECT_FALSE(api::IsTerminal(s.status().phase));
    ASSERT_TRUE(s.status().retry_after);
    const Milliseconds wait = *s.status().retry_after - s.in.now;
    EXPECT_GT(wait, last);
    last = wait;
    s.in.now += wait;
  }
  EXPECT_EQ(s.status().restarts.infrastructure, 0);
  EXPECT_THAT(s.status().excluded_nodes, ElementsAre(Pair("node-0", 3), Pair("node-1", 3))) << "in turn";
}

TEST(Refusal, OfAPodWhoseContainerRanIsAFailureOfItsOwn) {
  Scenario s;
  s.Start();
  s.Exit(0, 137);
  s.in.pods[0].reason = "NodeAffinity";
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.status().restarts.infrastructure, 1);
}

TEST(Penalties, GrowWithEachFailureAndAreHalvedByTime) {
  api::JobStatus status;
  TimePoint now{Milliseconds(1'800'000'000'000)};
  for (int i = 0; i < 5; ++i) AddPenalty(status, "a", now, kPeriod);
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), ElementsAre(Pair("a", 5)));
  now += kPeriod - Milliseconds(1);
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), ElementsAre(Pair("a", 5)));
  now += Milliseconds(1);
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), ElementsAre(Pair("a", 2)));
  AddPenalty(status, "b", now, kPeriod);
  EXPECT_THAT(status.excluded_nodes, ElementsAre(Pair("a", 5), Pair("b", 1))) << "time writes nothing by itself";
  now += kPeriod;
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), ElementsAre(Pair("a", 1)));
  AddPenalty(status, "a", now, kPeriod);
  EXPECT_THAT(status.excluded_nodes, ElementsAre(Pair("a", 2))) << "on top of what was left; b is forgotten";
  EXPECT_EQ(status.excluded_at.size(), 1u);
  now += 100 * kPeriod;
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), IsEmpty());
}

TEST(Penalties, OfAnOlderOperatorCountInFullUntilTheirClockBegins) {
  api::JobStatus status;
  status.excluded_nodes = {{"a", 4}};
  const TimePoint now{Milliseconds(1'800'000'000'000)};
  EXPECT_THAT(ActivePenalties(status, now, kPeriod), ElementsAre(Pair("a", 4)));
  ForgetOldPenalties(status, now, kPeriod);
  EXPECT_THAT(ActivePenalties(status, now + kPeriod, kPeriod), ElementsAre(Pair("a", 2)));
}

TEST(Penalties, AreForgottenByAJobThatOnlyWaits) {
  Scenario s;
  StartAndRefuse(s, "UnexpectedAdmissionError");
  const std::string refused_by = s.in.pods[0].node;
  s.Step();
  s.Reap();
  for (api::NodeSnapshot& node : s.in.nodes) node.unschedulable = true;
  s.in.now += kPeriod;
  s.Steps();
  EXPECT_FALSE(s.status().placement);
  for (api::NodeSnapshot& node : s.in.nodes) node.unschedulable = node.name != refused_by;
  s.Start();
  EXPECT_EQ(s.Phase(), "Running") << s.status().reason;
  EXPECT_THAT(NodesOf(s), ElementsAre(refused_by));
  EXPECT_THAT(s.status().excluded_nodes, IsEmpty());
}

// A watch that is behind still shows pods that are gone; another operator's claim stays.
TEST(Rivals, WhatIsBookedTwiceCountsOnlyWhenItStays) {
  for (const bool stays : {false, true}) {
    SCOPED_TRACE(stays);
    Scenario s;
    s.Step();
    ASSERT_FALSE(s.in.pods.empty());
    s.in.other_claims.push_back({"rival", 1, s.status().placement->nodes[0].node, 1});
    const Decision d = s.Step();
    EXPECT_FALSE(s.status().started);
    EXPECT_FALSE(s.status().stop);
    ASSERT_TRUE(d.requeue_after);
    EXPECT_EQ(s.in.now + *d.requeue_after, *s.status().placing_since + s.options.books_settle);
    if (!stays) s.in.other_claims.clear();
    s.in.now += *d.requeue_after;
    s.Step();
    EXPECT_EQ(s.status().started, !stays);
    EXPECT_EQ(s.ConditionReason(kPlaced), stays ? "False/Undone" : "True/Placed");
    EXPECT_EQ(s.status().undone_generation, 0);
  }
}

TEST(Rivals, DoNotTryAgainInStep) {
  std::set<int64_t> waits;
  for (int i = 0; i < 100; ++i) {
    Scenario s;
    s.in.job.meta.uid = "uid-" + std::to_string(i);
    StartAndRefuse(s, "OutOfnvidia.com/gpu");
    s.Step();
    ASSERT_TRUE(s.status().retry_after);
    waits.insert((*s.status().retry_after - s.in.now).count());
  }
  EXPECT_GT(waits.size(), 80u) << "of 100 rivals";
  EXPECT_GE(*waits.begin(), 500);
  EXPECT_LT(*waits.rbegin(), 1000);
}

// ---- trouble under a running gang ---------------------------------------------------------------------------------

int64_t Troubles(const Decision& d) {
  return std::count_if(d.events.begin(), d.events.end(), [](const Event& e) { return e.reason == "NodeTrouble"; });
}

TEST(NodeTrouble, IsToldOnceAndTheGangGoesOn) {
  using Spoil = void (*)(api::NodeSnapshot&);
  const std::vector<std::pair<const char*, Spoil>> spoils = {
      {"cordoned", [](api::NodeSnapshot& n) { n.unschedulable = true; }},
      {"taint maintenance=soon:NoSchedule",
       [](api::NodeSnapshot& n) { n.taints.push_back({"maintenance", "soon", "NoSchedule"}); }},
      {"condition XIDErrors=True", [](api::NodeSnapshot& n) { n.conditions["XIDErrors"] = "True"; }},
      {"advertises 1 of the 2 GPUs in use", [](api::NodeSnapshot& n) { n.allocatable[api::kGpuResource] = 1; }},
  };
  for (const auto& [said, spoil] : spoils) {
    Scenario s(3);
    s.in.job.spec.gpus.count = 4;
    s.Start();
    ASSERT_EQ(s.Phase(), "Running") << s.status().reason;
    ASSERT_THAT(s.status().advice, IsEmpty());
    const std::string name = NodesOf(s)[1];
    auto node = std::find_if(s.in.nodes.begin(), s.in.nodes.end(), [&](const auto& n) { return n.name == name; });
    const api::NodeSnapshot healthy = *node;
    spoil(*node);
    Decision d = s.Step();
    EXPECT_EQ(Troubles(d), 1) << said;
    EXPECT_THAT(d.actions, IsEmpty()) << said;
    EXPECT_EQ(s.Phase(), "Running");
    EXPECT_THAT(s.status().reason, HasSubstr("; node " + name + ": " + said));
    ASSERT_EQ(s.status().advice.size(), 1u);
    EXPECT_THAT(s.status().advice[0], HasSubstr("its next attempt goes elsewhere"));
    EXPECT_EQ(Troubles(s.Step()), 0) << said << " is told once";
    // The next attempt, for whatever reason, goes elsewhere.
    s.Exit(0, 137);
    s.Step();
    s.Reap();
    s.in.now += Milliseconds(300'000);
    s.Start();
    EXPECT_EQ(s.Phase(), "Running") << said << ": " << s.status().reason;
    EXPECT_THAT(NodesOf(s), testing::Not(testing::Contains(name))) << said;
    EXPECT_THAT(s.status().advice, IsEmpty());
    // And one that is well again is no news.
    *node = healthy;
    EXPECT_EQ(Troubles(s.Step()), 0);
  }
}

TEST(NodeTrouble, OfATaintThatTheJobBearsIsNone) {
  Scenario s;
  s.in.job.spec.pod_template.nodes.tolerations = {{"maintenance", "Exists", "", "NoSchedule"}};
  s.Start();
  for (api::NodeSnapshot& node : s.in.nodes) node.taints.push_back({"maintenance", "soon", "NoSchedule"});
  EXPECT_EQ(Troubles(s.Step()), 0);
  EXPECT_THAT(s.status().advice, IsEmpty());
}

TEST(NodeTrouble, ThatPassesIsNoLongerTold) {
  Scenario s(1);
  s.Start();
  s.in.nodes[0].unschedulable = true;
  s.Step();
  EXPECT_EQ(s.status().advice.size(), 1u);
  s.in.nodes[0].unschedulable = false;
  s.Step();
  EXPECT_THAT(s.status().advice, IsEmpty());
  EXPECT_THAT(s.status().reason, testing::Not(HasSubstr("cordoned")));
}

// ---- ranks --------------------------------------------------------------------------------------------------------

// Four nodes in two racks, and a spare one in each.
Scenario InRacks() {
  Scenario s(6, 2);
  for (size_t i = 0; i < s.in.nodes.size(); ++i) s.in.nodes[i].labels["example.com/rack"] = i % 2 == 0 ? "a" : "b";
  s.options.yard.topology = placement::Topology::Parse("rack=example.com/rack").value();
  s.in.job.spec.gpus.count = 8;
  return s;
}

TEST(Ranks, KeepTheirNodesWhenAPodIsReplaced) {
  Scenario s = InRacks();
  s.Start();
  ASSERT_EQ(s.Phase(), "Running") << s.status().reason;
  const auto before = NodesOf(s);
  const auto domains = s.status().placement->domains;
  ASSERT_EQ(before.size(), 4u);
  s.in.pods.erase(s.in.pods.begin() + 2);  // somebody deletes it
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering") << "the gang is one: all of it starts again from its checkpoint";
  s.Reap();
  s.in.now += Milliseconds(2'000);
  s.Start();
  ASSERT_EQ(s.Phase(), "Running") << s.status().reason;
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_EQ(NodesOf(s), before);
  EXPECT_EQ(s.status().restarts.infrastructure + s.status().restarts.user, 0);
  ASSERT_EQ(s.status().placement->domains.size(), domains.size());
  for (size_t i = 0; i < domains.size(); ++i) EXPECT_EQ(s.status().placement->domains[i].path, domains[i].path);
}

TEST(Ranks, OfTheNodesThatStayKeepTheirOrderWhenOneIsLost) {
  Scenario s = InRacks();
  s.Start();
  const auto before = NodesOf(s);
  ASSERT_EQ(before.size(), 4u);
  const std::string lost = before[1];
  std::erase_if(s.in.nodes, [&](const auto& node) { return node.name == lost; });
  s.Step();
  s.Reap();
  std::erase_if(s.in.pods, [&](const auto& pod) { return pod.node == lost; });  // as the garbage collector does
  s.in.now += Milliseconds(2'000);
  s.Start();
  ASSERT_EQ(s.Phase(), "Running") << s.status().reason;
  std::vector<std::string> stayed;
  for (const std::string& node : NodesOf(s)) {
    if (std::find(before.begin(), before.end(), node) != before.end()) stayed.push_back(node);
  }
  std::vector<std::string> in_order = before;
  std::erase_if(in_order, [&](const auto& n) { return std::find(stayed.begin(), stayed.end(), n) == stayed.end(); });
  EXPECT_GE(stayed.size(), 2u);
  EXPECT_EQ(stayed, in_order);
}

TEST(Ranks, AreContiguousPerDomainInStatusAndOnPods) {
  Scenario s = InRacks();
  s.in.job.spec.gpus.count = 12;
  const Decision d = s.Step();
  ASSERT_TRUE(s.status().placement) << s.status().reason;
  const auto& domains = s.status().placement->domains;
  ASSERT_EQ(domains.size(), 2u) << "one run for each rack";
  EXPECT_EQ(domains[0].path, "a");
  EXPECT_EQ(domains[0].nodes, 3);
  EXPECT_EQ(domains[1].path, "b");
  EXPECT_EQ(domains[1].nodes, 3);
  int64_t rank = 0;
  for (const Action& action : d.actions) {
    if (action.kind != Action::Kind::kCreatePod) continue;
    const nlohmann::json& annotations = action.object["metadata"]["annotations"];
    EXPECT_EQ(annotations["trainyard.dev/domain"], rank < 3 ? "a" : "b");
    EXPECT_EQ(annotations["trainyard.dev/ranks"], std::to_string(2 * rank) + "-" + std::to_string(2 * rank + 1));
    ++rank;
  }
  EXPECT_EQ(rank, 6);
}

TEST(Ranks, OfFiveHundredNodesTakeLittleSpaceInStatus) {
  Scenario s(512, 8);
  for (size_t i = 0; i < s.in.nodes.size(); ++i) {
    s.in.nodes[i].labels["zone"] = "eu-north-1a";
    s.in.nodes[i].labels["rack"] = "rack-" + std::to_string(i / 8);
  }
  s.options.yard.topology = placement::Topology::Parse("zone=zone,rack=rack").value();
  s.in.job.spec.gpus.count = 4096;
  s.in.job.spec.training.global_batch_size = 4096;
  s.in.job.spec.training.micro_batch_size = 1;
  s.Step();
  ASSERT_TRUE(s.status().placement) << s.status().reason;
  EXPECT_EQ(s.status().placement->domains.size(), 64u);
  EXPECT_LT(api::StatusToJson(s.status()).dump().size(), 32'000u) << "etcd takes 1.5 MB, and each write carries it";
}

}  // namespace
}  // namespace trainyard::lifecycle
