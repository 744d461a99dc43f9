// Spikes, traces, and the figure of merit: pure parts of watching.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "trainer/observe/flops.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/spike.h"
#include "trainer/observe/trace.h"

namespace trainyard::observe {
namespace {

using ms = std::chrono::milliseconds;

TEST(SpikeDetector, TellsAJumpWithItsNumbers) {
  SpikeDetector detector({.window = 8, .least = 4, .deviations = 8, .least_jump = 0.1});
  for (int step = 1; step <= 4; ++step) EXPECT_FALSE(detector.See(step, 2.0 + 0.01 * step));  // 2.01 .. 2.04
  EXPECT_FALSE(detector.See(5, 2.2)) << "less than a tenth above the median";
  const auto spike = detector.See(6, 3.0);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->step, 6);
  EXPECT_EQ(spike->loss, 3.0);
  EXPECT_DOUBLE_EQ(spike->median, 2.03);
  EXPECT_DOUBLE_EQ(spike->threshold, 2.03 * 1.1);  // MAD 0.01: 8 * 1.4826 * 0.01 is less
  EXPECT_FALSE(detector.See(7, 2.05)) << "back to normal";
}

TEST(SpikeDetector, NoiseAndDescentAreNoSpikes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 0.2);
  SpikeDetector detector;
  for (int step = 1; step <= 5000; ++step) {
    const double loss = 4 * std::exp(-step / 500.0) + 4 + noise(random);
    ASSERT_FALSE(detector.See(step, loss)) << "step " << step << " loss " << loss;
  }
  EXPECT_TRUE(detector.See(5001, 4 + 3.5));
}

TEST(SpikeDetector, SaysNothingWithoutAWindowAndOfNoNumber) {
  SpikeDetector detector;
  EXPECT_FALSE(detector.See(1, 1.0));
  EXPECT_FALSE(detector.See(2, 100.0));
  for (int step = 3; step < 40; ++step) detector.See(step, 1.0);
  EXPECT_FALSE(detector.See(40, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(detector.See(41, std::nan("")));
  EXPECT_TRUE(detector.See(42, 2.0));
}

TEST(SpikeDetector, ALossThatStaysHighBecomesNormal) {
  SpikeDetector detector({.window = 8, .least = 4});
  for (int step = 1; step <= 8; ++step) detector.See(step, 1.0);
  int told = 0;
  for (int step = 9; step <= 30; ++step) told += detector.See(step, 5.0).has_value() ? 1 : 0;
  EXPECT_EQ(told, 5) << "until half of the window and one are high";
}

TEST(Trace, IsOffUntilStarted) {
  Trace trace(3);
  const Trace::Time start;
  trace.Span("data", "step", start, start + ms(1));
  trace.Start();
  EXPECT_TRUE(trace.on());
  trace.Span("optimizer", "step", start + ms(2), start + ms(5));
  trace.Collective("AllGather gather root", start + ms(1), start + ms(3), 4096);
  const auto json =
      nlohmann::json::parse(trace.Finish(std::chrono::system_clock::time_point(std::chrono::seconds(1000)), start));
  EXPECT_FALSE(trace.on());
  std::vector<nlohmann::json> events;
  for (const auto& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] != "M") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["name"], "optimizer");
  EXPECT_EQ(events[0]["ph"], "X");
  EXPECT_EQ(events[0]["ts"], 1'000'002'000.0);
  EXPECT_EQ(events[0]["dur"], 3000.0);
  EXPECT_EQ(events[1]["name"], "AllGather gather root");
  EXPECT_EQ(events[1]["ph"], "b");
  EXPECT_EQ(events[1]["args"]["bytes"], 4096);
  EXPECT_EQ(events[2]["ph"], "e");
  EXPECT_EQ(events[2]["id"], events[1]["id"]);
  EXPECT_EQ(events[2]["ts"], 1'000'003'000.0);
  trace.Start();
  const auto again = nlohmann::json::parse(trace.Finish({}, start));
  EXPECT_EQ(again["traceEvents"].size(), 3U) << "names alone: what was written is gone";
}

TEST(PhaseClock, WaitsInAStepAreCommunication) {
  const PhaseClock::Time start;
  PhaseClock clock(start);
  clock.Switch(Activity::kCompute, start);
  clock.Waited(0.030);
  clock.Waited(0.010);
  clock.Switch(Activity::kOptimizer, start + ms(100));
  clock.Waited(0.005);
  clock.Switch(Activity::kCheckpoint, start + ms(120));
  clock.Waited(0.050);
  clock.Switch(Activity::kOther, start + ms(200));
  EXPECT_NEAR(clock.Take(Activity::kCompute), 0.060, 1e-9);
  EXPECT_NEAR(clock.Take(Activity::kCommunication), 0.045, 1e-9);
  EXPECT_NEAR(clock.Take(Activity::kOptimizer), 0.015, 1e-9);
  EXPECT_NEAR(clock.Take(Activity::kCheckpoint), 0.080, 1e-9);
  EXPECT_EQ(clock.Take(Activity::kCommunication), 0);
}

// The worked example of docs/watching.md.
TEST(Mfu, FollowsItsFormula) {
  const double flops = FlopsPerToken(6.607e9, 32, 4096, 4096);
  EXPECT_NEAR(flops, 6 * 6.607e9 + 12.0 * 32 * 4096 * 4096, 1);
  EXPECT_NEAR(Mfu(flops, 8 * 8000.0, 8, 989e12), 0.3728, 1e-4);
}

}  // namespace
}  // namespace trainyard::observe
