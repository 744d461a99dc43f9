// Why a gang fits nowhere, with the numbers, in one line. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/placement/place.h"
#include "operator/placement/selection.h"

namespace trainyard::placement {

// Whether a node's product is one that the request names.
bool ProductAllowed(const YardNode& node, const std::vector<std::string>& products);

// GPUs free for this request on a node, its own counted when it says so.
int64_t FreeFor(const YardNode& node, const GangRequest& request);

// Name of the first resource besides GPUs that a pod of this request lacks on the node; empty: none.
std::string LackingResource(const YardNode& node, const GangRequest& request);

// `products` narrows the request to what was tried.
std::string WhyNot(const Yard& yard, const GangRequest& request, const std::vector<std::string>& products);

}  // namespace trainyard::placement
