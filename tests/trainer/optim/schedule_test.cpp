// Learning rates against numbers worked out by hand.
#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

namespace trainyard::optim {
namespace {

TEST(Schedule, WarmsUpLinearlyAndReachesThePeak) {
  const Schedule s{Schedule::Type::kCosine, 1.0, 4, 12, 0.1};
  EXPECT_DOUBLE_EQ(LearningRate(s, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(s, 3), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 1.0);
}

TEST(Schedule, CosineFallsToTheFloorAtTheLastStep) {
  const Schedule s{Schedule::Type::kCosine, 1.0, 4, 12, 0.1};
  // A quarter of the way: 0.1 + 0.45 * (1 + cos(pi/4)) = 0.1 + 0.45 * 1.7071067811865475
  EXPECT_NEAR(LearningRate(s, 6), 0.86819805153394638, 1e-15);
  EXPECT_NEAR(LearningRate(s, 8), 0.55, 1e-15);
  EXPECT_NEAR(LearningRate(s, 12), 0.1, 1e-15);
  EXPECT_NEAR(LearningRate(s, 13), 0.1, 1e-15) << "stays at the floor past the end";
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const Schedule s{Schedule::Type::kConstant, 3e-4, 2, 10, 0.1};
  EXPECT_DOUBLE_EQ(LearningRate(s, 1), 1.5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(s, 2), 3e-4);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1000), 3e-4);
}

TEST(Schedule, NoWarmUpStartsBelowThePeakOnCosineOnly) {
  EXPECT_DOUBLE_EQ(LearningRate({Schedule::Type::kConstant, 2.0, 0, 5, 0.0}, 1), 2.0);
  // 0.5 * (1 + cos(pi/2)) of 2.0 at step 1 of 2, floor 0.
  EXPECT_NEAR(LearningRate({Schedule::Type::kCosine, 2.0, 0, 2, 0.0}, 1), 1.0, 1e-15);
}

TEST(Schedule, WarmUpAsLongAsTheRunNeverDivides) {
  const Schedule s{Schedule::Type::kCosine, 1.0, 5, 5, 0.1};
  EXPECT_DOUBLE_EQ(LearningRate(s, 5), 1.0);
  EXPECT_NEAR(LearningRate(s, 6), 0.1, 1e-15);
}

}  // namespace
}  // namespace trainyard::optim
