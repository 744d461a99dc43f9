#include "operator/placement/selection.h"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace trainyard::placement {
namespace {

using Candidates = std::span<Candidate>;

// Candidates of one domain, side by side.
struct Group {
  Candidates members;
  int64_t free = 0;
  size_t parts = 0;  // domains of the next level that the gang would touch in here at best; 0: not asked
};

class Chooser {
 public:
  Chooser(const Yard& yard, size_t count) : index_(yard.index()), count_(count) {}

  // Fills `taken` from one domain of `level`, or leaves it empty when none holds all.
  void TakeOneDomain(Candidates all, size_t level, std::optional<size_t> within) {
    std::vector<Group> groups;
    if (within && *within != level) {
      for (const Group& part : Split(all, *within)) {
        if (part.members.size() < count_) continue;
        for (const Group& group : Split(part.members, level)) groups.push_back(group);
      }
    } else {
      groups = Split(all, level);
    }
    if (Group* best = BestFit(groups, count_, level + 1)) Descend(best->members, count_, level + 1);
  }

  // Takes `count` of `candidates` from the fewest domains at each level from `level` down.
  void Descend(Candidates candidates, size_t count, size_t level) {
    if (count == candidates.size() || level >= index_.depth()) return TakeBroken(candidates, count);
    std::vector<Group> groups = Split(candidates, level);
    if (groups.size() == 1 || groups.size() == candidates.size()) return Descend(candidates, count, level + 1);
    // The largest first, until what remains fits into one: that takes the smallest that holds it.
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return a.members.size() != b.members.size() ? a.members.size() > b.members.size() : a.free < b.free;
    });
    std::span<Group> left(groups);
    while (left.front().members.size() < count) {
      const Candidates all = left.front().members;
      count -= all.size();
      TakeBroken(all, all.size());
      left = left.subspan(1);
    }
    const auto too_small =
        std::find_if(left.begin(), left.end(), [count](const Group& group) { return group.members.size() < count; });
    const auto able = static_cast<size_t>(too_small - left.begin());
    Descend(BestFit(left.first(able), count, level + 1)->members, count, level + 1);
  }

  // The most broken node; among equals one of the domain that has the fewest such nodes, looked at from near to far, so
  // that whole domains stay whole.
  void TakeOneNode(Candidates candidates) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Candidate& candidate : candidates) least = std::min(least, candidate.free);
    std::vector<Candidate> rest;
    for (const Candidate& candidate : candidates) {
      if (candidate.free == least) rest.push_back(candidate);
    }
    Candidates best(rest);
    for (size_t level = 0; level < index_.depth() && best.size() > 1; ++level) {
      std::vector<Group> groups = Split(best, level);
      best = std::min_element(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
               return a.members.size() < b.members.size();
             })->members;
    }
    taken.push_back(best.front().node);
  }

  std::vector<size_t> taken;

 private:
  // By domain at `level`, in the order of their first members.
  std::vector<Group> Split(Candidates all, size_t level) const {
    const std::vector<uint32_t>& domains = index_.Domains(level);
    // In the order of the yard the domains of a topology level lie side by side. Cliques need not.
    const auto before = [&domains](const Candidate& a, const Candidate& b) {
      return domains[a.node] < domains[b.node];
    };
    if (level + 1 == index_.depth() && !std::is_sorted(all.begin(), all.end(), before)) {
      std::stable_sort(all.begin(), all.end(), before);
    }
    std::vector<Group> groups;
    for (size_t begin = 0; begin < all.size();) {
      Group group;
      size_t end = begin;
      for (; end < all.size() && domains[all[end].node] == domains[all[begin].node]; ++end) group.free += all[end].free;
      group.members = all.subspan(begin, end - begin);
      groups.push_back(group);
      begin = end;
    }
    return groups;
  }

  // The fewest domains of `level` that hold `count` of these.
  size_t Parts(Candidates all, size_t count, size_t level) const {
    if (level >= index_.depth()) return count;
    std::vector<size_t> sizes;
    for (const Group& group : Split(all, level)) sizes.push_back(group.members.size());
    std::sort(sizes.rbegin(), sizes.rend());
    size_t parts = 0;
    for (size_t held = 0; held < count; ++parts) held += sizes[parts];
    return parts;
  }

  // Of the groups that hold `count`, the one where the fewest domains of `next` level do; among equals the smallest,
  // then the emptier one of free GPUs. Null when none holds it.
  Group* BestFit(std::span<Group> groups, size_t count, size_t next) const {
    Group* best = nullptr;
    for (Group& group : groups) {
      if (group.members.size() < count) continue;
      group.parts = Parts(group.members, count, next);
      const auto key = [](const Group& g) { return std::tuple(g.parts, g.members.size(), g.free); };
      if (best == nullptr || key(group) < key(*best)) best = &group;
    }
    return best;
  }

  // Nodes that are broken already go first, so that whole nodes stay whole; else in the order of the yard.
  void TakeBroken(Candidates candidates, size_t count) {
    const auto before = [](const Candidate& a, const Candidate& b) {
      return a.free != b.free ? a.free < b.free : a.node < b.node;
    };
    if (count < candidates.size()) {
      std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                       before);
    }
    for (const Candidate& candidate : candidates.first(count)) taken.push_back(candidate.node);
  }

  const YardIndex& index_;
  const size_t count_;
};

std::string Describe(const Yard& yard, const std::vector<size_t>& nodes) {
  if (nodes.size() == 1) return "node " + yard.nodes()[nodes[0]].name;
  // The nearest level where one domain holds all; else the domains of the farthest.
  const YardIndex& index = yard.index();
  std::vector<size_t> firsts;  // the first node of each domain
  for (size_t level = index.depth(); level-- > 0;) {
    const std::vector<uint32_t>& domains = index.Domains(level);
    firsts.clear();
    std::vector<uint32_t> seen;
    for (size_t node : nodes) {
      if (!firsts.empty() && domains[node] == domains[firsts.back()]) continue;
      if (std::find(seen.begin(), seen.end(), domains[node]) != seen.end()) continue;
      seen.push_back(domains[node]);
      firsts.push_back(node);
    }
    if (firsts.size() == 1) return DomainName(yard, firsts[0], level);
  }
  if (firsts.size() == nodes.size()) return std::to_string(nodes.size()) + " nodes";
  std::string text = std::to_string(firsts.size()) + " domains: ";
  for (size_t i = 0; i < firsts.size() && i < 4; ++i) text += (i > 0 ? ", " : "") + DomainName(yard, firsts[i], 0);
  return firsts.size() > 4 ? text + ", ..." : text;
}

}  // namespace

std::string DomainName(const Yard& yard, size_t node, size_t level) {
  const YardNode& n = yard.nodes()[node];
  if (level + 1 < yard.index().depth() && n.path.size() > level) return n.path[level];
  return n.clique.empty() ? "node " + n.name : "NVLink clique " + n.clique;
}

std::optional<Selection> Select(const Yard& yard, std::vector<Candidate> candidates, const Aim& aim) {
  if (candidates.size() < aim.count) return std::nullopt;
  Chooser chooser(yard, aim.count);
  if (aim.count == 1) {
    chooser.TakeOneNode(candidates);
  } else {
    for (size_t i = 0; i < aim.levels.size() && chooser.taken.empty(); ++i) {
      std::vector<Candidate> copy = candidates;  // a look at cliques may change the order
      chooser.TakeOneDomain(copy, aim.levels[i], aim.within);
    }
    if (chooser.taken.empty() && aim.several) chooser.Descend(candidates, aim.count, 0);
  }
  if (chooser.taken.empty()) return std::nullopt;
  Selection selection;
  selection.nodes = std::move(chooser.taken);
  std::sort(selection.nodes.begin(), selection.nodes.end());
  selection.domain = Describe(yard, selection.nodes);
  return selection;
}

}  // namespace trainyard::placement
