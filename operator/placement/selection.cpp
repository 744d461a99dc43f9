#include "operator/placement/selection.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace trainyard::placement {
namespace {

using Group = std::vector<Candidate>;

// Candidates by their domain at `level`, in Yard order of the first member.
std::vector<Group> Split(const Yard& yard, const Group& candidates, size_t level) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> index;
  for (const Candidate& candidate : candidates) {
    auto [it, added] = index.try_emplace(DomainKey(yard, candidate.node, level), groups.size());
    if (added) groups.emplace_back();
    groups[it->second].push_back(candidate);
  }
  return groups;
}

int64_t TotalFree(const Group& group) {
  return std::accumulate(group.begin(), group.end(), int64_t{0},
                         [](int64_t sum, const Candidate& c) { return sum + c.free; });
}

// The smallest group that holds `count`, the emptier one among equals; groups.size() when none does.
size_t BestFit(const std::vector<Group>& groups, const std::vector<bool>& taken, size_t count) {
  size_t best = groups.size();
  for (size_t i = 0; i < groups.size(); ++i) {
    if (taken[i] || groups[i].size() < count) continue;
    if (best == groups.size() || groups[i].size() < groups[best].size() ||
        (groups[i].size() == groups[best].size() && TotalFree(groups[i]) < TotalFree(groups[best]))) {
      best = i;
    }
  }
  return best;
}

// Takes `count` of `candidates` from the fewest domains at each level from `level` down.
void Descend(const Yard& yard, Group candidates, size_t count, size_t level, size_t depth, std::vector<size_t>& out) {
  if (count == candidates.size() || level == depth) {
    // Nodes that are broken already go first, so that whole nodes stay whole.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.free < b.free; });
    for (size_t i = 0; i < count; ++i) out.push_back(candidates[i].node);
    return;
  }
  std::vector<Group> groups = Split(yard, candidates, level);
  std::vector<bool> taken(groups.size(), false);
  while (count > 0) {
    size_t pick = BestFit(groups, taken, count);
    if (pick == groups.size()) {
      for (size_t i = 0; i < groups.size(); ++i) {
        if (!taken[i] && (pick == groups.size() || groups[i].size() > groups[pick].size())) pick = i;
      }
    }
    size_t part = std::min(count, groups[pick].size());
    taken[pick] = true;
    Descend(yard, groups[pick], part, level + 1, depth, out);
    count -= part;
  }
}

std::string Describe(const Yard& yard, const std::vector<size_t>& nodes, size_t depth) {
  if (nodes.size() == 1) return "node " + yard.nodes()[nodes[0]].name;
  std::vector<std::string> names, keys;
  for (size_t level = depth; level-- > 0;) {
    names.clear();
    keys.clear();
    for (size_t node : nodes) {
      std::string key = DomainKey(yard, node, level);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      keys.push_back(std::move(key));
      names.push_back(DomainName(yard, node, level));
    }
    if (names.size() == 1) return names[0];
  }
  if (names.empty() || names.size() == nodes.size()) return std::to_string(nodes.size()) + " nodes";
  std::string text = std::to_string(names.size()) + " domains: ";
  for (size_t i = 0; i < names.size() && i < 4; ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > 4 ? text + ", ..." : text;
}

}  // namespace

size_t TreeDepth(const Yard& yard) { return yard.path_levels() + 1; }

std::string DomainKey(const Yard& yard, size_t node, size_t level) {
  const YardNode& n = yard.nodes()[node];
  std::string key;
  size_t labels = yard.path_levels();
  if (level < labels && n.path.size() <= level) return "\x01" + n.name;
  if (level == labels && n.clique.empty()) return "\x01" + n.name;
  // A value is unique under its parents only.
  for (size_t i = 0; i <= level && i < n.path.size(); ++i) key += n.path[i] + '\x02';
  if (level == labels) key = '\x03' + n.clique;
  return key;
}

std::string DomainName(const Yard& yard, size_t node, size_t level) {
  const YardNode& n = yard.nodes()[node];
  size_t labels = yard.path_levels();
  if (level == labels && !n.clique.empty()) return "NVLink clique " + n.clique;
  if (level < labels && n.path.size() > level) return n.path[level];
  return "node " + n.name;
}

Selection Select(const Yard& yard, std::vector<Candidate> candidates, size_t count, bool use_cliques) {
  Selection selection;
  size_t depth = TreeDepth(yard);
  if (count == 1) {
    auto best = std::min_element(candidates.begin(), candidates.end(),
                                 [](const Candidate& a, const Candidate& b) { return a.free < b.free; });
    selection.nodes = {best->node};
  } else {
    size_t nearest = use_cliques ? depth : depth - 1;
    for (size_t level = nearest; level-- > 0 && selection.nodes.empty();) {
      std::vector<Group> groups = Split(yard, candidates, level);
      size_t pick = BestFit(groups, std::vector<bool>(groups.size(), false), count);
      if (pick < groups.size()) Descend(yard, groups[pick], count, level + 1, depth, selection.nodes);
    }
    if (selection.nodes.empty()) Descend(yard, std::move(candidates), count, 0, depth, selection.nodes);
  }
  std::sort(selection.nodes.begin(), selection.nodes.end());
  selection.domain = Describe(yard, selection.nodes, depth);
  return selection;
}

}  // namespace trainyard::placement
