// When saves are due and what they are taken to cost, with times given.
#include "trainer/loop/cadence.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/trainer/loop/goodput_simulation.h"
#include "trainer/contract/cadence.h"

namespace trainyard::loop {
namespace {

using std::chrono::milliseconds;

const Cadence::Time kStart{};
Cadence::Time At(double seconds) { return kStart + milliseconds(static_cast<int64_t>(seconds * 1000)); }

config::Checkpoint Job(int64_t steps, double seconds, double mtbf) {
  config::Checkpoint job;
  job.every_steps = steps;
  job.every_seconds = seconds;
  job.mean_seconds_between_failures = mtbf;
  return job;
}

// What the trainer does, and not the formula alone: the first save of a job comes after a minute, later attempts begin
// with what saves cost in those before, and the interval is from the start of one save to the start of the next.
TEST(CadenceTest, LosesLessThanThreePercentAgainstTheBestFixedCadence) {
  using namespace trainyard::testing;  // NOLINT: the simulation
  const uint64_t seed = Seed();
  for (const trainyard::testing::Job& job : kJobs) {
    std::vector<std::vector<double>> runs;
    for (uint64_t i = 0; i < 12; ++i) runs.push_back(Lives(job, seed + i));
    const double best = BestFixed(job, runs).second;
    double ours = 0;
    for (const auto& lives : runs) {
      config::Checkpoint checkpoint = loop::Job(0, 0, job.mtbf);
      std::optional<Cadence> cadence;
      ours += Goodput(job, lives, [&](size_t, size_t save) {
        if (save == 0) {
          if (cadence && cadence->cost_seconds()) {
            checkpoint.cost_seconds = *cadence->cost_seconds();
            checkpoint.save_seconds = job.write;
          }
          cadence.emplace(checkpoint, kStart);
          cadence->Stepped(1, false);
          return *cadence->interval_seconds();
        }
        cadence->Began(kStart);
        cadence->Saved(job.write, job.cost);
        return std::max(1.0, *cadence->interval_seconds() - job.cost);
      });
    }
    ours /= static_cast<double>(runs.size());
    std::printf("mtbf %.0f s, cost %.0f s: %.4f; the best %.4f\n", job.mtbf, job.cost, ours, best);
    EXPECT_GT(ours, 0.97 * best);
  }
}

TEST(CadenceTest, InStepsNothingIsDueByTime) {
  Cadence cadence(Job(50, 0, 0), kStart);
  EXPECT_FALSE(cadence.Due(At(1e6)));
  EXPECT_FALSE(cadence.interval_seconds());
  EXPECT_EQ(cadence.NextStep(0, At(1)), 50);
  EXPECT_EQ(cadence.NextStep(49, At(1)), 50);
  EXPECT_EQ(cadence.NextStep(50, At(1)), 100);
  Cadence none(Job(0, 0, 0), kStart);
  EXPECT_FALSE(none.Due(At(1e6)));
  EXPECT_FALSE(none.NextStep(7, At(1e6)));
}

TEST(CadenceTest, ByTimeFromTheStartOfOneToTheStartOfTheNext) {
  Cadence cadence(Job(0, 900, 0), kStart);
  EXPECT_EQ(cadence.interval_seconds(), 900);
  EXPECT_FALSE(cadence.Due(At(899)));
  EXPECT_TRUE(cadence.Due(At(900)));
  EXPECT_FALSE(cadence.NextStep(7, At(1))) << "no step has been measured";
  for (int i = 0; i < 5; ++i) cadence.Stepped(10, false);
  EXPECT_EQ(cadence.NextStep(5, At(50)), 5 + 85);
  cadence.Began(At(905));
  EXPECT_FALSE(cadence.Due(At(1800)));
  EXPECT_TRUE(cadence.Due(At(1805)));
  EXPECT_EQ(cadence.NextStep(90, At(2000)), 91) << "overdue: after the next one";
}

TEST(CadenceTest, WhatIsKeptForItsStepIsExpectedAtIt) {
  config::Checkpoint job = Job(0, 900, 0);
  job.keep_every_steps = 60;
  Cadence cadence(job, kStart);
  EXPECT_FALSE(cadence.NextStep(7, At(1))) << "the clock may come first";
  cadence.Stepped(10, false);
  EXPECT_EQ(cadence.NextStep(5, At(50)), 60);
  EXPECT_EQ(cadence.NextStep(60, At(600)), 60 + 30);
  EXPECT_EQ(Cadence(Job(50, 0, 0), kStart).NextStep(60, At(600)), 100);
}

TEST(CadenceTest, YoungAndDalyFromWhatSavesCost) {
  constexpr double kMtbf = 86'400;
  Cadence cadence(Job(0, 0, kMtbf), kStart);
  EXPECT_EQ(cadence.interval_seconds(), contract::kFirstSaveSeconds) << "nothing is known yet";
  EXPECT_FALSE(cadence.cost_seconds());
  for (const double seconds : {2.0, 2.0, 9.0, 2.0, 2.0}) cadence.Stepped(seconds, false);
  cadence.Began(At(60));
  // Three steps of 3 s where the median is 2; of the 3 s more half a second was the stall, which is not counted twice.
  for (int i = 0; i < 3; ++i) cadence.Stepped(3, true);
  cadence.Saved(8, 0.5);
  EXPECT_DOUBLE_EQ(*cadence.cost_seconds(), 3);
  EXPECT_DOUBLE_EQ(*cadence.interval_seconds(), std::sqrt(2 * 3 * kMtbf));
  // A stall alone, between two steps.
  cadence.Began(At(1000));
  cadence.Stepped(2, true);
  cadence.Saved(4, 1);
  EXPECT_DOUBLE_EQ(*cadence.cost_seconds(), 2) << "half of it is the last one";
  EXPECT_DOUBLE_EQ(*cadence.interval_seconds(), std::sqrt(2 * 2 * kMtbf));
}

TEST(CadenceTest, NeverShorterThanASaveOrAStep) {
  Cadence cadence(Job(0, 0, 10), kStart);
  cadence.Stepped(40, false);
  cadence.Began(At(60));
  cadence.Saved(30, 0.001);
  EXPECT_DOUBLE_EQ(*cadence.interval_seconds(), 40);
  cadence.Began(At(100));
  cadence.Saved(130, 0.001);
  EXPECT_DOUBLE_EQ(*cadence.interval_seconds(), 80);
}

}  // namespace
}  // namespace trainyard::loop
