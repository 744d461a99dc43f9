// Best fit over the domain tree, on positions of nodes: which `count` of the candidates a gang takes. Private to the
// room. Source: the two-phase algorithm of Kueue's topology-aware scheduling (count bottom-up, choose the nearest level
// where one domain holds all, the smallest that does; else the fewest domains; then descend by the same rule). Unlike
// there, a domain inside which the gang touches fewer domains of the next level wins over a smaller one.
// Pure. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/placement/yard.h"

namespace trainyard::placement {

// A node that can take one pod of the gang.
struct Candidate {
  uint32_t node = 0;  // position in Yard::nodes()
  int64_t free = 0;   // as this job sees it
};

// Which levels may hold the whole gang in one domain. The number of levels in the yard's index less one is the NVLink
// clique.
struct Aim {
  size_t count = 0;
  std::vector<size_t> levels;    // the first that can, does
  std::optional<size_t> within;  // never across domains of this level
  bool several = true;           // else the fewest domains will do
  bool operator==(const Aim&) const = default;
};

struct Selection {
  std::vector<size_t> nodes;  // in Yard order, which is rank order
  std::string domain;         // for people
};

// Name of the domain of `node` at `level`, for people.
std::string DomainName(const Yard& yard, size_t node, size_t level);

// Chooses among `candidates`, which are in the order of the yard. nullopt: not this way.
std::optional<Selection> Select(const Yard& yard, std::vector<Candidate> candidates, const Aim& aim);

}  // namespace trainyard::placement
