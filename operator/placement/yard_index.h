// The yard in packed numbers: what a choice among thousands of nodes reads of each, without touching strings, and which
// nodes share a label value or their taints. It follows the nodes of its Yard, at the same positions.
// Thread-safety: const access from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "operator/api/snapshot.h"

namespace trainyard::placement {

struct YardNode;

// Resources besides GPUs that nearly every pod asks for; any other is looked up by its name.
inline constexpr std::array<std::string_view, 4> kPackedResources = {"cpu", "memory", "pods", "ephemeral-storage"};
// What a node does not account for is never short.
inline constexpr int64_t kNotCounted = std::numeric_limits<int64_t>::max();

class YardIndex {
 public:
  struct Slot {
    int64_t usable = 0;
    int64_t free = 0;
    std::array<int64_t, kPackedResources.size()> resources{};  // free amounts, or kNotCounted
    int64_t linked = 0;    // a pod of so many GPUs has NVLink between all of them, see YardNode::Linked
    uint32_t product = 0;  // see Product()
    bool eligible = false;
  };
  using Positions = std::vector<uint32_t>;  // in no order
  using ByValue = std::unordered_map<std::string, Positions>;
  // key, value, effect
  using Taints = std::vector<std::tuple<std::string, std::string, std::string>>;

  // Anew, when nodes came, went or moved. `levels` is the length of the longest path.
  void Rebuild(const std::vector<YardNode>& nodes, size_t levels);
  // Around a change of the node at `position` that leaves its place in the order: of who holds what on it and, with
  // `marks`, of what the node says of itself.
  void Forget(size_t position, const YardNode& before, bool marks);
  void Learn(size_t position, const YardNode& now, bool marks);

  const std::vector<Slot>& slots() const { return slots_; }
  // Levels of the tree, far to near: the topology levels, then the NVLink clique.
  size_t depth() const { return domains_.size(); }
  // The domain of each node at a level: the position of the first node that is in it, so that the number alone tells
  // domains of one level apart. A value is unique under its parents only. A node of unknown place is in a domain of its
  // own, or of its clique: one NVLink domain is nearer than any level.
  const std::vector<uint32_t>& Domains(size_t level) const { return domains_[level]; }
  // Numbers of products are below this.
  size_t products() const { return products_.size(); }
  // Number of a product, at least products() when no node has it.
  uint32_t Product(const std::string& name) const;
  // The nodes where this job holds something.
  const Positions& NodesOf(const std::string& job_uid) const;
  // Nodes by their value of a label; those without it are left out.
  const ByValue& Label(const std::string& key) const;
  // Nodes by YardNode::taints; those without any are left out.
  const std::map<Taints, Positions>& taints() const { return taints_; }

 private:
  void Pack(size_t position, const YardNode& node);

  std::vector<Slot> slots_;
  // By level, then by position; a yard without nodes has the level of cliques.
  std::vector<std::vector<uint32_t>> domains_ = std::vector<std::vector<uint32_t>>(1);
  std::unordered_map<std::string, uint32_t> products_;
  std::unordered_map<std::string, Positions> nodes_of_job_;
  std::unordered_map<std::string, ByValue> labels_;
  std::map<Taints, Positions> taints_;
};

}  // namespace trainyard::placement
