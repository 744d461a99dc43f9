// Ten thousand histories of a hostile cluster. TRAINYARD_SEED=n repeats a run, with TRAINYARD_HISTORIES=1 one history.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/operator/lifecycle/simulation/history.h"

namespace trainyard::lifecycle::simulation {
namespace {

TEST(LifecycleSimulation, KeepsItsPromisesInEveryHistory) {
  uint64_t seed = SeedFromEnvironment();
  int64_t count = CountFromEnvironment(TRAINYARD_USUAL_HISTORIES);
  std::cout << "seed " << seed << std::endl;
  Summary summary = RunHistories(seed, count);
  std::cout << summary.histories << " histories: " << summary.attempts << " attempts, " << summary.restarts
            << " counted restarts, " << summary.succeeded << " jobs succeeded, " << summary.failed << " failed, "
            << summary.preempted << " preempted" << std::endl;
  if (summary.failed_seed_count > 0) {
    for (const std::string& line : RunHistory(summary.first_bad_seed, true).trace) std::cout << line << "\n";
    FAIL() << summary.first_violation << "\nrepeat with TRAINYARD_SEED=" << summary.first_bad_seed
           << " TRAINYARD_HISTORIES=1";
  }
  EXPECT_EQ(summary.histories, count);
  // The histories must have seen something, or they prove nothing.
  if (count >= 1000) {
    EXPECT_GT(summary.succeeded, count / 4);
    EXPECT_GT(summary.failed, count / 20);
    EXPECT_GT(summary.attempts, count);
    EXPECT_GT(summary.restarts, count / 8);
    EXPECT_GT(summary.preempted, count / 40);
  }
}

}  // namespace
}  // namespace trainyard::lifecycle::simulation
