// Which nodes a pod may go to, by labels, names and taints: the part of a pod that placement must know, in the words
// of Kubernetes. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::api {

struct Toleration {
  std::string key;                 // empty with Exists: every key
  std::string op;                  // Equal (also what an empty one means), Exists
  std::string value;               // empty with Exists
  std::string effect;              // NoSchedule, PreferNoSchedule, NoExecute; empty: every effect
  std::optional<int64_t> seconds;  // that NoExecute is borne; absent: for ever
  bool operator==(const Toleration&) const = default;
};

// One match expression: of a label, or of a field of the node.
struct NodeRequirement {
  std::string key;
  std::string op;                   // In, NotIn, Exists, DoesNotExist, Gt, Lt
  std::vector<std::string> values;  // some for In and NotIn, none for Exists and DoesNotExist, one integer for Gt, Lt
  bool operator==(const NodeRequirement&) const = default;
};

// All requirements must hold; a term without any holds for no node, as the scheduler has it.
struct NodeTerm {
  std::vector<NodeRequirement> expressions;  // of labels
  std::vector<NodeRequirement> fields;       // of metadata.name, the only field that there is; In and NotIn one value
  bool operator==(const NodeTerm&) const = default;
};

struct NodeConstraints {
  std::map<std::string, std::string> node_selector;  // every label must have this value
  std::vector<NodeTerm> affinity;                    // one must hold; empty: any node will do
  std::vector<Toleration> tolerations;               // besides the operator's own

  bool operator==(const NodeConstraints&) const = default;
  bool Empty() const { return node_selector.empty() && affinity.empty() && tolerations.empty(); }
};

}  // namespace trainyard::api
