// Whether one node, looked at alone, would take a gang's pod now: what the yard says of every node, without a yard.
// For jobs that run already and only want to know about the nodes under them. Pure. Thread-safety: pure function.
#pragma once

#include <cstdint>
#include <string>

#include "operator/api/node_constraints.h"
#include "operator/api/snapshot.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// Why a pod with `gpus` GPUs and these constraints would not come to the node even if it were empty, in the words of
// YardNode::ineligible and WhyBarred, or "advertises 7 of the 8 GPUs in use"; empty: it would.
std::string WhyUnfit(const api::NodeSnapshot& node, const api::NodeConstraints& constraints, int64_t gpus,
                     const YardOptions& options);

}  // namespace trainyard::placement
