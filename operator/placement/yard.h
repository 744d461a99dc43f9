// The yard: what a scheduler must know of every node, and the ledger of who holds which GPUs.
// Supply is allocatable, never capacity or labels; what is held is the larger of a live attempt's claim and its own
// unfinished pods, plus everybody else's scheduled unfinished pods, so that no GPU is counted twice or forgotten.
// Pure. Thread-safety: a built Yard is immutable; const access from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/api/node_constraints.h"
#include "operator/api/snapshot.h"
#include "operator/placement/fabric.h"
#include "operator/placement/topology.h"
#include "operator/placement/yard_index.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/plan.h"

namespace trainyard::placement {

// GPUs of one node held by one attempt of one job.
struct Booking {
  std::string job_uid;
  int64_t attempt = 0;
  std::string node;
  int64_t gpus = 0;
  bool operator==(const Booking&) const = default;
};

// What the ledger must know of one pod that holds something on a node: few bytes, since there may be many.
struct PodUse {
  std::string node;     // where it counts: bound, or, one of ours, pinned
  std::string job_uid;  // empty: not ours
  int64_t attempt = 0;
  int64_t gpus = 0;
  std::vector<std::pair<std::string, int64_t>> requests;  // every resource in base units (cpu in milli)
  bool operator==(const PodUse&) const = default;
};
// nullopt: it holds nothing on any node, for it has ended, or is not bound and nobody knows where it will go.
std::optional<PodUse> UseOf(const api::PodSnapshot& pod);

// How the GPUs of a node are linked, as far as labels and the annotation of links can tell.
enum class LinkClass {
  kPcie,
  kNvLinkBridges,  // islands of a few GPUs: only the annotation says so
  kNvSwitchNode,
  kNvLinkMultiNode
};

struct YardOptions {
  Topology topology = Topology::Auto();
  // Conditions that make a node unfit for new gangs: type -> the bad status. Sources differ in polarity.
  std::map<std::string, std::string> bad_conditions = DefaultBadConditions();
  // Keys of NoSchedule taints that all our pods tolerate.
  std::vector<std::string> tolerated_taints = {"nvidia.com/gpu"};

  // What is known of GPU products; null: the compiled-in catalogue.
  std::shared_ptr<const sizing::Catalogue> catalogue;
  // Null: the compiled-in ones.
  std::shared_ptr<const FabricProfiles> fabrics;

  static std::map<std::string, std::string> DefaultBadConditions();
};

struct YardNode {
  std::string name;
  bool known = false;      // to the catalogue
  std::string product;     // short name of the catalogue; the label itself when the catalogue does not know it
  int64_t memory_mib = 0;  // per GPU; the label, else the catalogue
  LinkClass link = LinkClass::kPcie;
  int64_t island = 0;             // kNvLinkBridges: GPUs of the smallest island of more than one
  std::string clique;             // nvidia.com/gpu.clique, whole; empty outside multi-node NVLink
  std::vector<std::string> path;  // values of the labels of Yard::levels(), far to near; shorter: unknown from there on
  int64_t usable = 0;             // whole GPUs advertised now; 0 when shared or sliced
  int64_t used = 0;
  int64_t free = 0;                               // max(0, usable - used)
  std::map<std::string, int64_t> free_resources;  // other allocatable resources less what unfinished pods ask
  std::map<std::string, int64_t> used_by_job;     // job UID -> GPUs of `used` held by our jobs
  std::map<std::string, std::map<std::string, int64_t>> resources_by_job;  // the same for other resources
  std::string ineligible;  // why no new gang may come here; empty: eligible
  // NoSchedule and NoExecute ones that not all our pods tolerate: whether they bar a job depends on its tolerations.
  std::vector<api::Taint> taints;
  std::string oddity;  // what a label or annotation says that cannot be so, in one line; it was ignored. Empty: nothing
  std::shared_ptr<const api::NodeSnapshot> snapshot;  // never null in a yard

  bool Eligible() const { return ineligible.empty(); }
  // Whether a pod that asks so many of its GPUs gets NVLink between all of them. On bridges the kubelet chooses, with
  // the device plugin's preferred allocation, which keeps islands together: sizes up to an island are taken to be so.
  bool Linked(int64_t gpus) const {
    if (gpus <= 1 || link == LinkClass::kNvSwitchNode || link == LinkClass::kNvLinkMultiNode) return true;
    return link == LinkClass::kNvLinkBridges && gpus <= island;
  }
};

class Yard {
 public:
  // `all_pods` are the pods of the whole cluster, `claims` the placements of every live attempt (of every job of
  // ours, the deciding one included).
  static Yard Build(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& all_pods,
                    const std::vector<Booking>& claims, const YardOptions& options);

  // In the order of the path, then clique, then natural order of the name: the order of ranks.
  const std::vector<YardNode>& nodes() const { return nodes_; }
  const YardNode* Find(std::string_view name) const;
  const sizing::Catalogue& catalogue() const { return sizing::OrDefault(catalogue_); }
  const FabricProfiles& fabrics() const { return fabrics_ != nullptr ? *fabrics_ : *FabricProfiles::Default(); }
  // Far to near. Path index i of every node is of level i.
  const std::vector<TopologyLevel>& levels() const { return levels_; }
  std::vector<std::string> level_names() const;
  // Index in levels() and in paths; nullopt: this yard has no such level.
  std::optional<size_t> LevelIndex(std::string_view name) const;
  // The same nodes in packed numbers, at the same positions.
  const YardIndex& index() const { return packed_; }
  // Length of the longest path.
  size_t path_levels() const { return path_levels_; }
  // Nodes that are eligible, and allowed to such a job, by product, memory and size, whatever is running on them: what
  // a plan may count on.
  std::vector<sizing::ProductSupply> Supply(const api::NodeConstraints& constraints = {}) const;

 private:
  friend class LiveYard;
  // Sorts the nodes and indexes them.
  void Arrange();

  std::shared_ptr<const sizing::Catalogue> catalogue_;
  std::shared_ptr<const FabricProfiles> fabrics_;
  std::vector<TopologyLevel> levels_;
  std::vector<YardNode> nodes_;
  size_t path_levels_ = 0;
  std::unordered_map<std::string, size_t> index_;
  YardIndex packed_;
};

// Writes into `node` what is left of `allocatable` when `pods` and `claims` of this node have taken theirs.
void Account(YardNode& node, const std::map<std::string, int64_t>& allocatable, const std::vector<const PodUse*>& pods,
             const std::vector<const Booking*>& claims);

// "key=value:NoSchedule"
std::string TaintText(const api::Taint& taint);

// "node-2" before "node-10": digits compare as numbers.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace trainyard::placement
