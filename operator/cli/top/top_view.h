// What `trainyard top` shows, computed from what a cluster holds by the same pure functions that the operator decides
// with: nobody has to be asked. Pure. Thread-safety: pure functions over plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/cli/top/read_cluster.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/placement/census.h"

namespace trainyard::cli {

struct LargestGang {
  std::string scope;  // "in a node", "in an NVLink domain", "in a rack" for each level, "anywhere"
  int64_t gpus = 0;   // as whole nodes; in a node, what is free there
};

struct ProductView {
  std::string product;
  placement::Tally tally;
  std::vector<LargestGang> largest;
};

// A domain of the topology, or what an NVLink clique spans; one line per product in it.
struct DomainView {
  std::string level;              // "rack", "NVLink"
  std::vector<std::string> path;  // of names, far to near, its own last
  std::string product;
  placement::Tally tally;
};

struct Holder {
  std::string name;  // "default/big" of a job; "pod kube-system/x" of others
  int64_t gpus = 0;
};

struct NodeView {
  std::string name;
  std::string product;
  std::vector<std::string> path;
  std::string clique;
  int64_t usable = 0;
  int64_t used = 0;
  int64_t free = 0;
  std::vector<Holder> held_by;  // most GPUs first
  std::string unfit;            // why no new gang may come; empty: fit
  std::string oddity;           // what its labels say that cannot be; empty: nothing
};

struct QueueView {
  size_t position = 0;  // from 1
  std::string job;      // ns/name
  int64_t priority = 0;
  int64_t gpus = 0;
  int64_t per_node = 0;
  std::string product;
  TimePoint since;
  std::optional<TimePoint> expected_start;
  int64_t reserved = 0;              // free GPUs that are kept for it
  std::vector<std::string> victims;  // jobs that stop for it
  std::string why;
};

struct TopView {
  TimePoint now;
  std::vector<std::string> levels;  // far to near
  std::vector<ProductView> products;
  std::vector<DomainView> domains;  // in the order of the tree
  std::vector<NodeView> nodes;      // those with GPUs, or a product; in the order of ranks
  std::vector<QueueView> queue;     // in order
  std::vector<std::string> notes;
};

// `per_gpu`: what pods of the largest gangs ask for with each GPU.
TopView Look(const ClusterView& cluster, const lifecycle::Options& options, TimePoint now,
             const api::Amounts& per_gpu = {});

}  // namespace trainyard::cli
