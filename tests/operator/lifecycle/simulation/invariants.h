// What must hold after every event, and what must hold once nothing happens any more. Each returns the first rule that
// is broken, or nothing. Thread-safety: pure functions of the world.
#pragma once

#include <string>

#include "tests/operator/lifecycle/simulation/world.h"

namespace trainyard::lifecycle::simulation {

// `one_operator`: nobody was ever deposed, so claims cannot overlap either.
std::string CheckAlways(World& world, bool one_operator);
// After all faults are healed and everything has settled.
std::string CheckQuiet(const World& world);

}  // namespace trainyard::lifecycle::simulation
