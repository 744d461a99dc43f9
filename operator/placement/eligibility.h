// What the labels, taints and conditions of one node say about it. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/api/snapshot.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// Product, memory, link class, clique, path and usable GPUs; the ledger is not looked at.
YardNode Describe(const api::NodeSnapshot& node, const YardOptions& options);

}  // namespace trainyard::placement
