#include "operator/placement/yard_index.h"

#include <algorithm>

#include "operator/placement/yard.h"

namespace trainyard::placement {
namespace {

// Whether two nodes share the place at `level`; both come in the order of the yard.
bool SamePlace(const YardNode& a, const YardNode& b, size_t level) {
  const size_t known = std::min(level + 1, std::max(a.path.size(), b.path.size()));
  if (a.path.size() < known || b.path.size() < known) return false;
  const auto end = static_cast<std::ptrdiff_t>(known);
  if (!std::equal(a.path.begin(), a.path.begin() + end, b.path.begin())) return false;
  return known == level + 1 || (!a.clique.empty() && a.clique == b.clique);
}

}  // namespace

void YardIndex::Pack(size_t position, const YardNode& node) {
  Slot& slot = slots_[position];
  slot.usable = node.usable;
  slot.free = node.free;
  slot.eligible = node.Eligible();
  slot.tainted = !node.taints.empty();
  slot.linked = node.Linked(kNotCounted) ? kNotCounted : std::max<int64_t>(1, node.island);
  slot.product = products_.try_emplace(node.product, static_cast<uint32_t>(products_.size())).first->second;
  for (size_t i = 0; i < kPackedResources.size(); ++i) {
    const auto free = node.free_resources.find(std::string(kPackedResources[i]));
    slot.resources[i] = free == node.free_resources.end() ? kNotCounted : free->second;
  }
}

void YardIndex::Rebuild(const std::vector<YardNode>& nodes, size_t levels) {
  slots_.assign(nodes.size(), Slot());
  products_.clear();
  nodes_of_job_.clear();
  domains_.assign(levels + 1, std::vector<uint32_t>(nodes.size()));
  std::unordered_map<std::string_view, uint32_t> cliques;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto position = static_cast<uint32_t>(i);
    Pack(i, nodes[i]);
    for (const auto& [job, gpus] : nodes[i].used_by_job) nodes_of_job_[job].push_back(position);
    for (size_t level = 0; level < levels; ++level) {
      const bool same = i > 0 && SamePlace(nodes[i - 1], nodes[i], level);
      domains_[level][i] = same ? domains_[level][i - 1] : position;
    }
    // A clique is one fabric wherever its nodes are said to stand.
    const std::string& clique = nodes[i].clique;
    domains_[levels][i] = clique.empty() ? position : cliques.try_emplace(clique, position).first->second;
  }
}

void YardIndex::Refresh(size_t position, const YardNode& before, const YardNode& now) {
  for (const auto& [job, gpus] : before.used_by_job) {
    if (now.used_by_job.contains(job)) continue;
    const auto it = nodes_of_job_.find(job);
    if (it == nodes_of_job_.end()) continue;
    std::erase(it->second, static_cast<uint32_t>(position));
    if (it->second.empty()) nodes_of_job_.erase(it);
  }
  for (const auto& [job, gpus] : now.used_by_job) {
    if (!before.used_by_job.contains(job)) nodes_of_job_[job].push_back(static_cast<uint32_t>(position));
  }
  Pack(position, now);
}

uint32_t YardIndex::Product(const std::string& name) const {
  const auto it = products_.find(name);
  return it == products_.end() ? std::numeric_limits<uint32_t>::max() : it->second;
}

const std::vector<uint32_t>& YardIndex::NodesOf(const std::string& job_uid) const {
  static const std::vector<uint32_t> kNone;
  const auto it = nodes_of_job_.find(job_uid);
  return it == nodes_of_job_.end() ? kNone : it->second;
}

}  // namespace trainyard::placement
