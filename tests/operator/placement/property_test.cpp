// The choice against an oracle that tries every set of nodes of small random yards. What must hold:
// - What is placed is legal: room for each pod as a plain count says, one product, allowed nodes, one domain where one
//   was required. What is refused cannot be placed by anybody.
// - Nodes that failed before are used only if nothing else fits.
// - The nearest wanted level at which any legal choice keeps the gang in one domain, keeps it in one; and of the next
//   nearer level no such choice touches fewer domains. Where no wanted level can hold it, no legal choice touches fewer
//   domains of the farthest level.
// - The ring in rank order crosses borders of each level as rarely as any order of these nodes could.
// - The order in which nodes and pods were told changes nothing.
#include <algorithm>
#include <functional>
#include <iostream>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/operator/placement/seed.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

constexpr const char* kProducts[] = {"NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200", "NVIDIA-H100-PCIe"};
constexpr const char* kShort[] = {"H100-SXM", "GB200", "H100-PCIe"};

// A node as the oracle sees it.
struct Plain {
  std::string name;
  std::vector<std::string> places;  // by level
  std::string clique;
  size_t product = 0;
  int64_t gpus = 0, cpu = 0;
  bool cordoned = false, tainted = false;
  std::string pool;
  int64_t foreign = 0, foreign_cpu = 0;         // GPUs and milli-cores of other people's pods
  std::map<std::string, int64_t> held_by_jobs;  // by claims
};

struct Case {
  std::vector<std::string> levels;
  std::vector<Plain> nodes;
  GangRequest request;

  YardOptions Options() const {
    std::vector<TopologyLevel> keys;
    for (const std::string& level : levels) keys.push_back({level, "example.com/" + level});
    YardOptions options;
    options.topology = Topology::Of(keys);
    return options;
  }

  Yard Build(const std::vector<size_t>& order) const {
    std::vector<api::NodeSnapshot> snapshots;
    std::vector<api::PodSnapshot> pods;
    std::vector<Booking> claims;
    for (const size_t i : order) {
      const Plain& node = nodes[i];
      api::NodeSnapshot& out = snapshots.emplace_back(MakeNode(node.name, node.gpus, "", "z", kProducts[node.product]));
      for (size_t level = 0; level < levels.size(); ++level) {
        // A missing label and an empty one mean the same.
        if (!node.places[level].empty() || i % 2 == 0) out.labels["example.com/" + levels[level]] = node.places[level];
      }
      if (!node.clique.empty()) out.labels["nvidia.com/gpu.clique"] = node.clique;
      out.labels["pool"] = node.pool;
      out.unschedulable = node.cordoned;
      if (node.tainted) out.taints.push_back({"team", "blue", "NoSchedule"});
      out.allocatable["cpu"] = node.cpu;
      if (node.foreign > 0 || node.foreign_cpu > 0) {
        pods.push_back(ForeignPod(node.name, node.foreign));
        pods.back().requests["cpu"] = node.foreign_cpu;
      }
      for (const auto& [job, gpus] : node.held_by_jobs) claims.push_back({job, 1, node.name, gpus});
    }
    return Yard::Build(snapshots, pods, claims, Options());
  }

  std::vector<size_t> InOrder() const {
    std::vector<size_t> order(nodes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    return order;
  }

  // ---- the oracle ----

  int64_t Free(const Plain& node) const {
    int64_t free = node.gpus - node.foreign;
    for (const auto& [job, gpus] : node.held_by_jobs) {
      if (job != request.job_uid && !request.released.contains(job)) free -= gpus;
    }
    const auto held = request.held.find(node.name);
    return free - (held == request.held.end() ? 0 : held->second);
  }

  bool Known(const Plain& node, size_t level) const {
    for (size_t i = 0; i <= level; ++i) {
      if (node.places[i].empty()) return false;
    }
    return true;
  }

  // Text that is equal for nodes of one domain. The level after the last is the clique.
  std::string Domain(const Plain& node, size_t level) const {
    if (level == levels.size()) return node.clique.empty() ? "alone " + node.name : node.clique;
    std::string key;
    for (size_t i = 0; i <= level; ++i) {
      if (!node.places[i].empty()) {
        key += node.places[i] + "/";
        continue;
      }
      return node.clique.empty() ? "alone " + node.name : key + "clique " + node.clique;
    }
    return key;
  }

  std::optional<size_t> Named() const {
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] == request.level) return i;
    }
    return std::nullopt;
  }

  bool CanTakeOne(const Plain& node) const {
    if (node.cordoned || Free(node) < request.per_node) return false;
    // Who asks for none gets it, even where more is taken than there is.
    const int64_t cpu = request.pod_resources.at("cpu");
    if (cpu > 0 && node.cpu - node.foreign_cpu < cpu) return false;
    if (node.tainted && request.constraints.tolerations.empty()) return false;
    const auto pool = request.constraints.node_selector.find("pool");
    if (pool != request.constraints.node_selector.end() && pool->second != node.pool) return false;
    const bool linked = !node.clique.empty() || node.product != 2;
    if (request.nvlink == api::NvLink::kRequired && request.gpus > 1 && request.per_node > 1 && !linked) return false;
    if (request.level_required && !Known(node, *Named())) return false;
    if (request.products.empty()) return true;
    return std::find(request.products.begin(), request.products.end(), kShort[node.product]) != request.products.end();
  }

  size_t Domains(const std::vector<size_t>& set, size_t level) const {
    std::set<std::string> domains;
    for (const size_t i : set) domains.insert(Domain(nodes[i], level));
    return domains.size();
  }

  // Given that each node can take a pod.
  bool Legal(const std::vector<size_t>& set) const {
    for (const size_t i : set) {
      if (nodes[i].product != nodes[set[0]].product) return false;
    }
    if (request.level_required && Domains(set, *Named()) > 1) return false;
    return request.nvlink != api::NvLink::kRequired || set.size() == 1 ||
           (!nodes[set[0]].clique.empty() && Domains(set, levels.size()) == 1);
  }

  int64_t Failures(const std::vector<size_t>& set) const {
    int64_t most = 0;
    for (const size_t i : set) {
      const auto it = request.excluded_nodes.find(nodes[i].name);
      if (it != request.excluded_nodes.end()) most = std::max(most, it->second);
    }
    return most;
  }

  // Levels at which one domain is wanted, the most wanted first.
  std::vector<size_t> Wanted() const {
    std::vector<size_t> wanted;
    if (request.nvlink != api::NvLink::kAny) wanted.push_back(levels.size());
    if (request.nvlink == api::NvLink::kRequired) return wanted;
    const std::optional<size_t> named = Named();
    if (request.level_required) {
      wanted.push_back(*named);
      return wanted;
    }
    for (size_t level = named ? *named + 1 : levels.size(); level-- > 0;) wanted.push_back(level);
    return wanted;
  }

  std::vector<std::vector<size_t>> LegalSets() const {
    std::vector<size_t> able;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (CanTakeOne(nodes[i])) able.push_back(i);
    }
    std::vector<std::vector<size_t>> sets;
    const auto count = static_cast<size_t>(request.gpus / request.per_node);
    std::vector<size_t> set;
    std::function<void(size_t)> choose = [&](size_t from) {
      if (set.size() == count) {
        if (Legal(set)) sets.push_back(set);
        return;
      }
      for (size_t i = from; i < able.size(); ++i) {
        set.push_back(able[i]);
        choose(i + 1);
        set.pop_back();
      }
    };
    choose(0);
    return sets;
  }
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

 private:
  std::mt19937_64 random_;
};

Case RandomCase(Dice& dice) {
  Case c;
  const char* names[] = {"zone", "block", "rack"};
  for (int64_t i = dice.Below(4); i > 0; --i) c.levels.push_back(names[c.levels.size()]);
  const int64_t count = 1 + dice.Below(10);
  const int64_t products = dice.OneIn(2) ? 1 : 1 + dice.Below(3);
  const bool rough = dice.OneIn(2);  // unknown places, taints, cordons
  for (int64_t i = 0; i < count; ++i) {
    Plain node;
    node.name = "n" + std::to_string(i);
    for (size_t level = 0; level < c.levels.size(); ++level) {
      const bool unknown = rough && dice.OneIn(6);
      node.places.push_back(unknown ? ""
                                    : c.levels[level].substr(0, 1) + std::to_string(dice.Below(2 + dice.Below(2))));
    }
    node.product = static_cast<size_t>(dice.Below(products));
    if (node.product == 1 && !dice.OneIn(4)) {
      node.clique = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31." + std::to_string(dice.Below(3));
    }
    node.gpus = dice.OneIn(3) ? 4 : 8;
    node.cpu = 1000 * (4 + dice.Below(12));
    node.pool = dice.OneIn(3) ? "b" : "a";
    node.cordoned = rough && dice.OneIn(8);
    node.tainted = rough && dice.OneIn(6);
    if (dice.OneIn(4)) node.foreign = dice.Below(node.gpus + 1);
    if (dice.OneIn(4)) node.foreign_cpu = 1000 * dice.Below(8);
    for (const char* job : {"me", "other", "stopped"}) {
      if (dice.OneIn(10)) node.held_by_jobs[job] = 1 + dice.Below(4);
    }
    c.nodes.push_back(std::move(node));
  }
  GangRequest& r = c.request;
  r.job_uid = "me";
  r.per_node = dice.OneIn(2) ? int64_t{1} << dice.Below(4) : 1 + dice.Below(4);
  r.gpus = r.per_node * (1 + dice.Below(5));
  r.nvlink = dice.OneIn(4) ? api::NvLink::kRequired : dice.OneIn(2) ? api::NvLink::kAny : api::NvLink::kPreferred;
  r.pod_resources["cpu"] = dice.OneIn(3) ? 1000 * dice.Below(8) : 0;
  for (int64_t i = dice.OneIn(3) ? 1 + dice.Below(2) : 0; i > 0; --i) r.products.emplace_back(kShort[dice.Below(3)]);
  if (!c.levels.empty() && dice.OneIn(2)) {
    r.level = c.levels[static_cast<size_t>(dice.Below(static_cast<int64_t>(c.levels.size())))];
    r.level_required = dice.OneIn(3);
  }
  if (dice.OneIn(4)) r.constraints.node_selector["pool"] = "a";
  if (dice.OneIn(2)) r.constraints.tolerations.push_back({.key = "team", .op = "Exists"});
  if (dice.OneIn(3)) r.released.insert("stopped");
  for (const Plain& node : c.nodes) {
    if (dice.OneIn(8)) r.held[node.name] = 1 + dice.Below(8);
    if (dice.OneIn(8)) r.excluded_nodes[node.name] = 1 + dice.Below(3);
  }
  return c;
}

size_t Fewest(const Case& c, const std::vector<std::vector<size_t>>& sets, size_t level) {
  size_t fewest = sets.empty() ? 0 : sets[0].size();
  for (const auto& set : sets) fewest = std::min(fewest, c.Domains(set, level));
  return fewest;
}

void CheckDomains(const Case& c, const std::vector<size_t>& mine, const std::vector<std::vector<size_t>>& rivals) {
  for (const size_t level : c.Wanted()) {
    std::vector<std::vector<size_t>> together;
    std::copy_if(rivals.begin(), rivals.end(), std::back_inserter(together),
                 [&](const auto& set) { return c.Domains(set, level) == 1; });
    if (together.empty()) continue;
    ASSERT_EQ(c.Domains(mine, level), 1u) << "level " << level << " could hold all";
    if (level < c.levels.size()) {
      ASSERT_EQ(c.Domains(mine, level + 1), Fewest(c, together, level + 1)) << "inside level " << level;
    }
    return;
  }
  ASSERT_EQ(c.Domains(mine, 0), Fewest(c, rivals, 0)) << "of the farthest level";
}

void CheckPlaced(const Case& c, const Yard& yard, const GangPlacement& placed,
                 const std::vector<std::vector<size_t>>& legal) {
  std::vector<size_t> ranks, mine;
  for (const std::string& name : placed.nodes) {
    const auto it = std::find_if(c.nodes.begin(), c.nodes.end(), [&](const Plain& node) { return node.name == name; });
    ranks.push_back(static_cast<size_t>(it - c.nodes.begin()));
  }
  mine = ranks;
  std::sort(mine.begin(), mine.end());
  ASSERT_NE(std::find(legal.begin(), legal.end(), mine), legal.end()) << "not legal: " << placed.why;

  // Rivals: sets that the order of preferences before domains does not rule out.
  int64_t failures = c.Failures(legal[0]);
  for (const auto& set : legal) failures = std::min(failures, c.Failures(set));
  ASSERT_EQ(c.Failures(mine), failures);
  std::vector<std::vector<size_t>> rivals;
  for (const auto& set : legal) {
    if (c.Failures(set) <= failures && c.nodes[set[0]].product == c.nodes[mine[0]].product) rivals.push_back(set);
  }
  if (mine.size() == 1) {
    for (const auto& set : rivals) ASSERT_LE(c.Free(c.nodes[mine[0]]), c.Free(c.nodes[set[0]]));
  } else {
    CheckDomains(c, mine, rivals);
  }
  for (size_t level = 0; level < c.levels.size(); ++level) {
    if (level >= yard.path_levels()) break;
    const size_t domains = c.Domains(mine, level);
    ASSERT_EQ(RingCrossings(yard, placed.nodes, level), static_cast<int64_t>(domains > 1 ? domains : 0));
  }
  for (size_t i = 0; i < mine.size(); ++i) ASSERT_TRUE(CanTake(yard, *yard.Find(placed.nodes[i]), c.request));
}

TEST(PlacementProperties, HoldOnTenThousandRandomYards) {
  const uint64_t seed = Seed();
  Dice dice(seed);
  int placed_count = 0, refused_count = 0, several_domains = 0;
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE("TRAINYARD_SEED=" + std::to_string(seed) + " round " + std::to_string(round));
    const Case c = RandomCase(dice);
    std::vector<size_t> order = c.InOrder();
    const Yard yard = c.Build(order);
    const auto placed = Place(yard, c.request);
    const std::vector<std::vector<size_t>> legal = c.LegalSets();
    ASSERT_EQ(placed.has_value(), !legal.empty()) << (placed ? placed->why : placed.error().message);
    dice.Shuffle(order);
    const auto again = Place(c.Build(order), c.request);
    ASSERT_EQ(again.has_value(), placed.has_value());
    if (!placed) {
      ++refused_count;
      ASSERT_EQ(again.error().message, placed.error().message);
      ASSERT_EQ(placed.error().code, ErrorCode::kResourceExhausted);
      ASSERT_EQ(placed.error().message.find('\n'), std::string::npos);
      continue;
    }
    ++placed_count;
    ASSERT_EQ(again->nodes, placed->nodes);
    ASSERT_EQ(again->why, placed->why);
    CheckPlaced(c, yard, *placed, legal);
    if (HasFatalFailure()) return;
    several_domains += placed->domain.find("domains") != std::string::npos ? 1 : 0;
  }
  std::cout << placed_count << " placed, " << refused_count << " refused, " << several_domains << " in several domains"
            << std::endl;
  // The yards are neither too poor nor too rich to say anything.
  EXPECT_GT(placed_count, 2000);
  EXPECT_GT(refused_count, 2000);
}

// Gangs one after the other, each deciding on a ledger that has those before: no node is ever given twice.
TEST(PlacementProperties, ManyGangsInARowNeverOverCommitANode) {
  const uint64_t seed = Seed();
  Dice dice(seed);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE("TRAINYARD_SEED=" + std::to_string(seed) + " round " + std::to_string(round));
    std::vector<api::NodeSnapshot> nodes;
    const int64_t count = 4 + dice.Below(30);
    for (int64_t i = 0; i < count; ++i) {
      nodes.push_back(MakeNode("n" + std::to_string(i), dice.OneIn(4) ? 4 : 8, "r" + std::to_string(dice.Below(5)),
                               "z" + std::to_string(dice.Below(2))));
      nodes.back().allocatable["pods"] = 3;
    }
    std::vector<Booking> claims;
    for (int64_t job = 0; job < 40; ++job) {
      const int64_t per_node = int64_t{1} << dice.Below(4);
      GangRequest request = Want(per_node * (1 + dice.Below(6)), per_node);
      request.job_uid = "job-" + std::to_string(job);
      const Yard yard = Yard::Build(nodes, {}, claims, kRackOptions);
      const auto placed = Place(yard, request);
      if (!placed) continue;
      for (const std::string& node : placed->nodes) claims.push_back({request.job_uid, 1, node, per_node});
    }
    std::map<std::string, int64_t> given;
    for (const Booking& claim : claims) given[claim.node] += claim.gpus;
    for (const api::NodeSnapshot& node : nodes) {
      ASSERT_LE(given[node.name], node.allocatable.at(api::kGpuResource)) << node.name;
    }
  }
}

}  // namespace
}  // namespace trainyard::placement
