// Best fit over the domain tree, on indices of nodes: which `count` of the candidates a gang takes. Private to the
// room. Source: the two-phase algorithm of Kueue's topology-aware scheduling (count bottom-up, choose the nearest level
// where one domain holds all, the smallest that does; else the fewest domains; then descend by the same rule).
// Pure. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "operator/placement/yard.h"

namespace trainyard::placement {

// A node that can take one pod of the gang.
struct Candidate {
  size_t node = 0;   // index in Yard::nodes()
  int64_t free = 0;  // as this job sees it
};

struct Selection {
  std::vector<size_t> nodes;  // in Yard order, which is rank order
  std::string domain;         // for people
};

// Levels of the tree, far to near: the topology keys, then NVLink clique. `level` == depth means the node itself.
size_t TreeDepth(const Yard& yard);
// Name of the domain of `node` at `level`, unique by its whole path; a node of unknown place is a domain of its own.
std::string DomainKey(const Yard& yard, size_t node, size_t level);
// The same for people.
std::string DomainName(const Yard& yard, size_t node, size_t level);

// Chooses `count` of `candidates` (at least `count` of them). `use_cliques` prefers one NVLink clique to anything.
Selection Select(const Yard& yard, std::vector<Candidate> candidates, size_t count, bool use_cliques);

}  // namespace trainyard::placement
