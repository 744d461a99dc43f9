#include "operator/placement/yard.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "operator/placement/constraints.h"
#include "operator/placement/eligibility.h"

namespace trainyard::placement {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool PathLess(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const std::string& x, const std::string& y) { return NaturalLess(x, y); });
}

// Sums of requests stay at the ends of the range: what others ask may be absurd, and must never wrap into room.
void AddTo(int64_t& sum, int64_t amount) {
  if (!__builtin_add_overflow(sum, amount, &sum)) return;
  sum = amount > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

void TakeFrom(int64_t& sum, int64_t amount) {
  if (!__builtin_sub_overflow(sum, amount, &sum)) return;
  sum = amount > 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

// What one attempt of one job holds on one node: by its claim, and by its pods that exist.
struct Held {
  int64_t claimed = 0;
  int64_t podded = 0;
};

// (job UID, attempt)
using HeldKey = std::pair<std::string_view, int64_t>;

}  // namespace

std::string TaintText(const api::Taint& taint) {
  return taint.key + (taint.value.empty() ? "" : "=" + taint.value) + ":" + taint.effect;
}

bool NaturalLess(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      size_t i0 = i, j0 = j;
      while (i < a.size() && IsDigit(a[i])) ++i;
      while (j < b.size() && IsDigit(b[j])) ++j;
      std::string_view x = a.substr(i0, i - i0), y = b.substr(j0, j - j0);
      while (x.size() > 1 && x[0] == '0') x.remove_prefix(1);
      while (y.size() > 1 && y[0] == '0') y.remove_prefix(1);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // equal but for leading zeros: any fixed order
}

std::optional<PodUse> UseOf(const api::PodSnapshot& pod) {
  if (pod.Terminal()) return std::nullopt;
  // Only our own pods are known to go where they are pinned; a foreign one counts from the moment it is bound.
  const std::string& where = !pod.node.empty() || pod.job_uid.empty() ? pod.node : pod.pinned_node;
  if (where.empty()) return std::nullopt;
  PodUse use{where, pod.job_uid, pod.attempt, pod.gpus, {}};
  use.requests.assign(pod.requests.begin(), pod.requests.end());
  return use;
}

void Account(YardNode& node, const std::map<std::string, int64_t>& allocatable, const std::vector<const PodUse*>& pods,
             const std::vector<const Booking*>& claims) {
  node.used = 0;
  node.free_resources.clear();
  node.used_by_job.clear();
  node.resources_by_job.clear();
  for (const auto& [resource, amount] : allocatable) {
    if (resource != api::kGpuResource) node.free_resources[resource] = amount;
  }
  std::map<HeldKey, Held> held;
  for (const Booking* claim : claims) AddTo(held[{claim->job_uid, claim->attempt}].claimed, claim->gpus);
  for (const PodUse* pod : pods) {
    for (const auto& [resource, amount] : pod->requests) {
      auto free = node.free_resources.find(resource);
      if (free == node.free_resources.end()) continue;
      TakeFrom(free->second, amount);
      if (!pod->job_uid.empty()) AddTo(node.resources_by_job[pod->job_uid][resource], amount);
    }
    if (auto slots = node.free_resources.find("pods"); slots != node.free_resources.end()) {
      --slots->second;
      if (!pod->job_uid.empty()) ++node.resources_by_job[pod->job_uid]["pods"];
    }
    if (pod->job_uid.empty()) {
      AddTo(node.used, pod->gpus);
    } else {
      AddTo(held[{pod->job_uid, pod->attempt}].podded, pod->gpus);
    }
  }
  for (const auto& [key, amounts] : held) {
    int64_t gpus = std::max(amounts.claimed, amounts.podded);
    AddTo(node.used, gpus);
    AddTo(node.used_by_job[std::string(key.first)], gpus);
  }
  node.free = node.used >= node.usable ? 0 : node.usable - std::max<int64_t>(0, node.used);
}

void Yard::Arrange() {
  std::sort(nodes_.begin(), nodes_.end(), [](const YardNode& a, const YardNode& b) {
    if (a.path != b.path) return PathLess(a.path, b.path);
    if (a.clique != b.clique) return NaturalLess(a.clique, b.clique);
    return NaturalLess(a.name, b.name);
  });
  index_.clear();
  path_levels_ = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    index_[nodes_[i].name] = i;
    path_levels_ = std::max(path_levels_, nodes_[i].path.size());
  }
}

Yard Yard::Build(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& all_pods,
                 const std::vector<Booking>& claims, const YardOptions& options) {
  Yard yard;
  yard.catalogue_ = options.catalogue;
  yard.fabrics_ = options.fabrics;
  LevelCensus census(options.topology);
  for (const api::NodeSnapshot& node : nodes) census.Add(node.labels);
  yard.levels_ = census.Levels();
  ProductNames products(options.catalogue);
  for (const api::NodeSnapshot& node : nodes) {
    yard.nodes_.push_back(Describe(std::make_shared<const api::NodeSnapshot>(node), options, yard.levels_, products));
  }
  yard.Arrange();
  std::vector<PodUse> uses;
  uses.reserve(all_pods.size());
  for (const api::PodSnapshot& pod : all_pods) {
    if (auto use = UseOf(pod)) uses.push_back(*std::move(use));
  }
  std::vector<std::vector<const PodUse*>> pods_of(yard.nodes_.size());
  std::vector<std::vector<const Booking*>> claims_of(yard.nodes_.size());
  for (const PodUse& use : uses) {
    if (auto it = yard.index_.find(use.node); it != yard.index_.end()) pods_of[it->second].push_back(&use);
  }
  for (const Booking& claim : claims) {
    if (auto it = yard.index_.find(claim.node); it != yard.index_.end()) claims_of[it->second].push_back(&claim);
  }
  for (size_t i = 0; i < yard.nodes_.size(); ++i) {
    Account(yard.nodes_[i], yard.nodes_[i].snapshot->allocatable, pods_of[i], claims_of[i]);
  }
  yard.packed_.Rebuild(yard.nodes_, yard.path_levels_);
  return yard;
}

std::vector<std::string> Yard::level_names() const {
  std::vector<std::string> names;
  for (const TopologyLevel& level : levels_) names.push_back(level.name);
  return names;
}

std::optional<size_t> Yard::LevelIndex(std::string_view name) const {
  for (size_t i = 0; i < levels_.size(); ++i) {
    if (levels_[i].name == name) return i;
  }
  return std::nullopt;
}

const YardNode* Yard::Find(std::string_view name) const {
  auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &nodes_[it->second];
}

std::vector<sizing::ProductSupply> Yard::Supply(const api::NodeConstraints& constraints) const {
  // Nodes of one product may differ in memory and size: each kind is one entry.
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> kinds;
  for (const YardNode& node : nodes_) {
    if (!node.Eligible() || !node.known || !Allowed(node, constraints)) continue;
    ++kinds[{node.product, node.memory_mib, node.usable}];
  }
  std::vector<sizing::ProductSupply> supply;
  for (const auto& [kind, count] : kinds) {
    const auto& [product, memory, gpus] = kind;
    supply.push_back({.product = product, .memory_mib = memory, .gpus_per_node = gpus, .nodes = count});
  }
  return supply;
}

}  // namespace trainyard::placement
