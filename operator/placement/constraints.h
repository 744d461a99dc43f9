// Whether the nodeSelector, the required node affinity and the tolerations of a job let its pods onto a node, with the
// meaning that kube-scheduler gives them (k8s.io/component-helpers/scheduling/corev1). What bars every gang is not
// asked here: see YardNode::ineligible. Pure. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/api/node_constraints.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// Builds no text: meant for every node of a large yard.
bool Allowed(const YardNode& node, const api::NodeConstraints& constraints);

// Empty: allowed. Else the first of "taint a=b:NoSchedule", "node selector zone=a", "node affinity zone In [a, b]".
std::string WhyBarred(const YardNode& node, const api::NodeConstraints& constraints);

}  // namespace trainyard::placement
