// spec.podTemplate: what the user adds to every pod of the job. Thread-safety: plain values.
#pragma once

#include <map>
#include <string>

#include "operator/api/node_constraints.h"

namespace trainyard::api {

// It is merged under what the operator sets, never over it.
struct PodTemplate {
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  NodeConstraints nodes;    // nodeSelector, required node affinity, tolerations: placement keeps to them
  std::string preferences;  // JSON of affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution, or empty
  std::string rest;         // JSON object of the other fields of the pod's spec (pod_fields.h), or empty

  bool Empty() const {
    return labels.empty() && annotations.empty() && nodes.Empty() && preferences.empty() && rest.empty();
  }
};

}  // namespace trainyard::api
