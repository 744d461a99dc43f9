// Why a gang fits nowhere, with the numbers, in one line: what is asked, what is free where, how many nodes are out for
// which reason, and what would help. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/placement/place.h"

namespace trainyard::placement {

std::string WhyNot(const Yard& yard, const GangRequest& request);

}  // namespace trainyard::placement
