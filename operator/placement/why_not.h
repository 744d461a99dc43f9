// Why a gang fits nowhere, with the numbers, in one line: what is asked, what is free where, how many nodes are out for
// which reason, and what would help.
// Pure. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/placement/place.h"

namespace trainyard::placement {

std::string WhyNot(const Yard& yard, const GangRequest& request);

// Why no node of these products (any that the catalogue knows, if none is named) takes a gang of such tolerations now,
// whatever runs there: "no node takes this gang now; of 55 H100-SXM nodes: 53 not ready, 2 cordoned". Empty: one takes
// it, or there is no such node.
std::string WhyNoneTakes(const Yard& yard, const std::vector<std::string>& products,
                         const std::vector<api::Toleration>& tolerations);

}  // namespace trainyard::placement
