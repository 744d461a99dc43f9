// The Node object of a simulated machine. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/local/local_cluster.h"

namespace trainyard::local {

// Labels as GPU Feature Discovery writes them, with product "trainyard-simulated". CPU and memory are given generously:
// all simulated machines share one real one, which nobody can divide for them.
nlohmann::json MakeNode(const NodeOptions& options, TimePoint now);
// Condition Ready, and the taint that the node lifecycle controller sets on an unreachable node.
void SetNodeReady(nlohmann::json& node, bool ready, TimePoint now);
// Memory of this machine in MiB.
int64_t MachineMemoryMib();

}  // namespace trainyard::local
