// Linked to a copy of lifecycle from which one guard was taken out: the simulation must notice.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/operator/lifecycle/simulation/history.h"

namespace trainyard::lifecycle::simulation {
namespace {

TEST(LifecycleMutation, IsCaughtBySimulation) {
  uint64_t seed = SeedFromEnvironment();
  std::cout << "seed " << seed << std::endl;
  Summary summary = RunHistories(seed, CountFromEnvironment(TRAINYARD_USUAL_HISTORIES));
  std::cout << summary.histories << " histories until seed " << summary.first_bad_seed << ": "
            << summary.first_violation << std::endl;
  EXPECT_GT(summary.failed_seed_count, 0)
      << "lifecycle without this guard passed " << summary.histories << " histories: the simulation proves nothing";
}

}  // namespace
}  // namespace trainyard::lifecycle::simulation
