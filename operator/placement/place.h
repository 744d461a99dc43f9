// The choice of nodes for a whole gang: one node, else one domain, else the fewest domains, best fit at each level, so
// that small jobs fill broken nodes and whole nodes stay whole. All or nothing. Rank order is contiguous by domain.
// Pure and deterministic. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/node_constraints.h"
#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// One role: pods that are all alike. A gang of several roles (a leader beside its workers) would carry a list of these,
// chosen in one go, since one may not eat the room of another.
struct GangRequest {
  std::string job_uid;  // what it holds now counts as free: it leaves that before it takes this
  int64_t gpus = 0;
  int64_t per_node = 0;               // GPUs of each pod; divides `gpus`
  std::vector<std::string> products;  // short names; empty: any. One gang never mixes products
  api::NvLink nvlink = api::NvLink::kPreferred;
  std::string level;            // name of a topology level that one domain of should hold the gang; empty: the nearest
  bool level_required = false;  // it must: no other level will do, nor nodes whose place at it is unknown
  api::NodeConstraints constraints;               // of the job's pod template
  std::map<std::string, int64_t> excluded_nodes;  // node -> failures; avoided while anything better fits
  std::map<std::string, int64_t> pod_resources;   // what each pod asks besides GPUs, base units (cpu in milli)
  std::set<std::string> released;                 // UIDs of jobs whose holdings count as free, as if they had stopped
  std::map<std::string, int64_t> held;            // node -> GPUs kept for gangs that are ahead in the queue
  bool operator==(const GangRequest&) const = default;
};

struct GangPlacement {
  std::vector<std::string> nodes;  // index is the node rank
  std::string product;
  std::string domain;  // for people: "node a", "rack-3", "NVLink clique ...", "2 domains: rack-1, rack-2"
  std::string why;     // one line
};

// Errors: kInvalidArgument for a request that makes no sense; kResourceExhausted when it fits nowhere now, with the
// numbers: "needs 16 GPUs of one NVLink domain; largest free domain has 12 (rack-3)".
Result<GangPlacement> Place(const Yard& yard, const GangRequest& request);

// The same without the words of a refusal, which cost more than the search: for those who try many requests.
std::optional<GangPlacement> FindPlace(const Yard& yard, const GangRequest& request);

// Whether this node, taken alone, could hold one pod of the gang now; `node` is one of the yard.
bool CanTake(const Yard& yard, const YardNode& node, const GangRequest& request);

// How often the ring over `nodes` (in rank order, last to first included) crosses a border of domain level `level`.
// The order of Place has the minimum: the number of domains if more than one, else 0. Source: the ring that NCCL
// builds over nodes in order of first rank.
int64_t RingCrossings(const Yard& yard, const std::vector<std::string>& nodes, size_t level);

}  // namespace trainyard::placement
