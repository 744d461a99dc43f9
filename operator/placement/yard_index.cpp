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

YardIndex::Taints TaintsOf(const YardNode& node) {
  YardIndex::Taints taints;
  for (const api::Taint& taint : node.taints) taints.emplace_back(taint.key, taint.value, taint.effect);
  return taints;
}

// Takes `position` out of what is kept under `key`.
template <typename Map>
void Drop(Map& map, const typename Map::key_type& key, uint32_t position) {
  const auto it = map.find(key);
  if (it == map.end()) return;
  std::erase(it->second, position);
  if (it->second.empty()) map.erase(it);
}

}  // namespace

void YardIndex::Pack(size_t position, const YardNode& node) {
  Slot& slot = slots_[position];
  slot.usable = node.usable;
  slot.free = node.free;
  slot.eligible = node.Eligible();
  slot.linked = node.Linked(kNotCounted) ? kNotCounted : std::max<int64_t>(1, node.island);
  slot.product = products_.try_emplace(node.product, static_cast<uint32_t>(products_.size())).first->second;
  for (size_t i = 0; i < kPackedResources.size(); ++i) {
    const auto free = node.free_resources.find(std::string(kPackedResources[i]));
    slot.resources[i] = free == node.free_resources.end() ? kNotCounted : free->second;
  }
}

void YardIndex::Forget(size_t position, const YardNode& before, bool marks) {
  const auto at = static_cast<uint32_t>(position);
  for (const auto& [job, gpus] : before.used_by_job) Drop(nodes_of_job_, job, at);
  if (!marks) return;
  for (const auto& [key, value] : before.snapshot->labels) {
    const auto label = labels_.find(key);
    Drop(label->second, value, at);
    if (label->second.empty()) labels_.erase(label);
  }
  if (!before.taints.empty()) Drop(taints_, TaintsOf(before), at);
}

void YardIndex::Learn(size_t position, const YardNode& now, bool marks) {
  const auto at = static_cast<uint32_t>(position);
  Pack(position, now);
  for (const auto& [job, gpus] : now.used_by_job) nodes_of_job_[job].push_back(at);
  if (!marks) return;
  for (const auto& [key, value] : now.snapshot->labels) labels_[key][value].push_back(at);
  if (!now.taints.empty()) taints_[TaintsOf(now)].push_back(at);
}

void YardIndex::Rebuild(const std::vector<YardNode>& nodes, size_t levels) {
  slots_.assign(nodes.size(), Slot());
  products_.clear();
  nodes_of_job_.clear();
  labels_.clear();
  taints_.clear();
  domains_.assign(levels + 1, std::vector<uint32_t>(nodes.size()));
  std::unordered_map<std::string_view, uint32_t> cliques;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto position = static_cast<uint32_t>(i);
    Learn(i, nodes[i], /*marks=*/true);
    for (size_t level = 0; level < levels; ++level) {
      const bool same = i > 0 && SamePlace(nodes[i - 1], nodes[i], level);
      domains_[level][i] = same ? domains_[level][i - 1] : position;
    }
    // A clique is one fabric wherever its nodes are said to stand.
    const std::string& clique = nodes[i].clique;
    domains_[levels][i] = clique.empty() ? position : cliques.try_emplace(clique, position).first->second;
  }
}

uint32_t YardIndex::Product(const std::string& name) const {
  const auto it = products_.find(name);
  return it == products_.end() ? std::numeric_limits<uint32_t>::max() : it->second;
}

const YardIndex::Positions& YardIndex::NodesOf(const std::string& job_uid) const {
  static const Positions kNone;
  const auto it = nodes_of_job_.find(job_uid);
  return it == nodes_of_job_.end() ? kNone : it->second;
}

const YardIndex::ByValue& YardIndex::Label(const std::string& key) const {
  static const ByValue kNone;
  const auto it = labels_.find(key);
  return it == labels_.end() ? kNone : it->second;
}

}  // namespace trainyard::placement
