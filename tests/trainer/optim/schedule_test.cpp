// Learning rates against numbers worked out by hand.
#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(Schedule, LinearFallsToTheFloorAtTheLastStep) {
  const Schedule s{Schedule::Type::kLinear, 2.0, 4, 12, 0.25};
  EXPECT_DOUBLE_EQ(LearningRate(s, 2), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 2.0);
  EXPECT_DOUBLE_EQ(LearningRate(s, 5), 0.5 + 1.5 * 7 / 8);
  EXPECT_DOUBLE_EQ(LearningRate(s, 8), 1.25);
  EXPECT_DOUBLE_EQ(LearningRate(s, 12), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 20), 0.5) << "stays at the floor past the end";
}

// Warm-up to step 4, stable to step 12, decay over the last 8 of 20 steps, from 1 to 0.2.
Schedule Wsd(Schedule::Shape shape) { return {Schedule::Type::kWarmupStableDecay, 1.0, 4, 20, 0.2, 8, shape}; }

TEST(Schedule, WarmupStableDecayIsThree) {
  for (auto shape : {Schedule::Shape::kLinear, Schedule::Shape::kCosine, Schedule::Shape::kSqrt}) {
    const Schedule s = Wsd(shape);
    EXPECT_DOUBLE_EQ(LearningRate(s, 1), 0.25);
    for (int64_t step = 4; step <= 12; ++step) EXPECT_EQ(LearningRate(s, step), 1.0) << step;
    for (int64_t step = 13; step <= 20; ++step) EXPECT_LT(LearningRate(s, step), LearningRate(s, step - 1)) << step;
    EXPECT_DOUBLE_EQ(LearningRate(s, 20), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(s, 21), 0.2);
  }
  // A quarter of the decay, and half of it.
  EXPECT_DOUBLE_EQ(LearningRate(Wsd(Schedule::Shape::kLinear), 14), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(Wsd(Schedule::Shape::kSqrt), 14), 0.6);
  EXPECT_NEAR(LearningRate(Wsd(Schedule::Shape::kCosine), 14), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_DOUBLE_EQ(LearningRate(Wsd(Schedule::Shape::kCosine), 16), 0.6);
}

TEST(Schedule, AStableRateDoesNotDependOnTheNumberOfSteps) {
  Schedule s = Wsd(Schedule::Shape::kLinear), longer = s;
  longer.total_steps = 2000;
  for (int64_t step = 1; step <= 12; ++step) EXPECT_EQ(LearningRate(s, step), LearningRate(longer, step));
  EXPECT_EQ(LearningRate(longer, 1992), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(longer, 1996), 0.6);
}

TEST(Schedule, WarmupAndDecayMayTouchAndDecayMayBeNothing) {
  Schedule s{Schedule::Type::kWarmupStableDecay, 1.0, 4, 12, 0.0, 8};
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(s, 8), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 12), 0.0);
  s = {Schedule::Type::kWarmupStableDecay, 1.0, 12, 12, 0.0, 0};
  EXPECT_DOUBLE_EQ(LearningRate(s, 12), 1.0);
}

// Every schedule, at every step: between 0 and the peak, rising in warm-up and never after it.
TEST(Schedule, NeverRisesAfterWarmUp) {
  using Type = Schedule::Type;
  for (Type type : {Type::kConstant, Type::kCosine, Type::kLinear, Type::kWarmupStableDecay}) {
    for (auto shape : {Schedule::Shape::kLinear, Schedule::Shape::kCosine, Schedule::Shape::kSqrt}) {
      const Schedule s{type, 3e-4, 7, 100, 0.1, 30, shape};
      for (int64_t step = 1; step <= 110; ++step) {
        const double rate = LearningRate(s, step);
        EXPECT_GT(rate, 0.0);
        EXPECT_LE(rate, s.peak);
        EXPECT_TRUE(step <= 7 || rate <= LearningRate(s, step - 1)) << step;
      }
      EXPECT_NEAR(LearningRate(s, 100), type == Type::kConstant ? 3e-4 : 3e-5, 1e-18);
    }
  }
}

}  // namespace
}  // namespace trainyard::optim
