// Whether the nodeSelector, the required node affinity and the tolerations of a job let its pods onto a node, with the
// meaning that kube-scheduler gives them (k8s.io/component-helpers/scheduling/corev1). What bars every gang is not
// asked here: see YardNode::ineligible. Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/api/node_constraints.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

bool Allowed(const YardNode& node, const api::NodeConstraints& constraints);

// Empty: allowed. Else the first of "taint a=b:NoSchedule", "node selector zone=a", "node affinity zone In [a, b]".
std::string WhyBarred(const YardNode& node, const api::NodeConstraints& constraints);

// Of every node of a yard, by position: 0 where it is allowed; else a number that only nodes share of which WhyBarred
// says the same. Asks once per value of a label and once per list of taints, which nodes by the thousand have in
// common.
std::vector<uint32_t> Judge(const Yard& yard, const api::NodeConstraints& constraints);

}  // namespace trainyard::placement
