// Where random tests of placement begin.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace trainyard::placement {

// TRAINYARD_SEED, else a new one; printed, so that a run can be repeated.
inline uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "TRAINYARD_SEED=" << seed << std::endl;
  return seed;
}

}  // namespace trainyard::placement
