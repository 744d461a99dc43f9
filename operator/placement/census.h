// What a yard has, in numbers, for people and metrics: GPUs used, free, stranded and unfit, and the largest gang that
// could be placed at once, for each product and for each domain of the topology.
// Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/api/pod_amounts.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// All counts but `nodes` and `unfit_nodes` are GPUs. used + free = usable - unfit on nodes that keep what they
// advertise.
struct Tally {
  int64_t nodes = 0;
  int64_t unfit_nodes = 0;  // no new gang may come here
  int64_t whole_nodes = 0;  // fit, and nothing of it in use
  int64_t usable = 0;       // advertised now, on fit and unfit nodes
  int64_t used = 0;         // held on fit nodes
  int64_t free = 0;         // on fit nodes
  int64_t stranded = 0;     // of `free`: on nodes that cannot be given as a whole, since some of it is in use
  int64_t unfit = 0;        // advertised by unfit nodes, in use or not

  // GPUs of the largest gang whose pods are as large as whole nodes: so many of the largest size that gives the most.
  int64_t largest_gang = 0;
};

struct DomainCensus {
  std::vector<std::string> path;  // values of the levels, far to near; the last is the domain
  Tally tally;
};

struct ProductCensus {
  std::string product;
  Tally tally;                     // `largest_gang`: anywhere
  int64_t largest_in_node = 0;     // the most GPUs that one pod could get
  int64_t largest_in_nvlink = 0;   // largest gang in one NVLink domain: one node, or one clique
  std::vector<int64_t> in_domain;  // per topology level, far to near: largest gang in one domain of it
  // Per level, far to near, the domains in the order of the yard; nodes of unknown place at a level are in none.
  std::vector<std::vector<DomainCensus>> domains;
  std::vector<DomainCensus> cliques;         // path: the clique alone
  std::map<std::string, int64_t> why_unfit;  // reason -> nodes
};

struct Census {
  std::vector<ProductCensus> products;  // by name; nodes that carry no product are left out
  int64_t nodes_without_gpus = 0;       // advertise none and carry no product
};

// The largest gangs are of pods that ask for `per_gpu` with each GPU; where that is empty they need GPUs and room for
// one more pod, and nothing else.
Census CountYard(const Yard& yard, const api::Amounts& per_gpu = {});

}  // namespace trainyard::placement
