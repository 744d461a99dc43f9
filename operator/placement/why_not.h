// Why a gang fits nowhere, with the numbers, in one line. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/placement/place.h"
#include "operator/placement/selection.h"

namespace trainyard::placement {

// The products that a request names, as nodes call them (the catalogue's short names where it knows them).
std::vector<std::string> ShortNames(const std::vector<std::string>& products, const sizing::Catalogue& catalogue);
// Whether a node's product is one of them; any known label will do where none is named.
bool ProductAllowed(const YardNode& node, const std::vector<std::string>& short_names);

// GPUs free for this request on a node, its own counted when it says so.
int64_t FreeFor(const YardNode& node, const GangRequest& request);

// Name of the first resource besides GPUs that a pod of this request lacks on the node; empty: none.
std::string LackingResource(const YardNode& node, const GangRequest& request);

std::string WhyNot(const Yard& yard, const GangRequest& request);

}  // namespace trainyard::placement
