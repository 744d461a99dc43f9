#include "operator/sizing/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace trainyard::sizing {
namespace {

constexpr double kNvlink4 = 450e9 * 0.80;

StepTraffic Fsdp7b(int64_t gpus) {
  StepTraffic s;
  s.strategy = api::Strategy::kFsdp;
  s.parameters = 7e9;
  s.layers = 32;
  s.tokens = 8192;
  s.gpus = gpus;
  s.peak_flops = 989e12;
  s.mfu = 0.45;
  s.intra_bandwidth = kNvlink4;
  return s;
}

TEST(Scaling, CeilingIsTheReference) {
  EXPECT_DOUBLE_EQ(CeilingEfficiency(1), 1);
  EXPECT_NEAR(CeilingEfficiency(2), 0.90, 1e-12);
  EXPECT_NEAR(CeilingEfficiency(3), 0.871, 5e-4);
  EXPECT_NEAR(CeilingEfficiency(4), 0.85, 1e-12);
  EXPECT_NEAR(CeilingEfficiency(6), 0.821, 5e-4);
  EXPECT_NEAR(CeilingEfficiency(8), 0.80, 1e-12);
  EXPECT_NEAR(CeilingEfficiency(16), 0.79, 1e-12);
  EXPECT_NEAR(CeilingEfficiency(64), 0.77, 1e-12);
  EXPECT_NEAR(CeilingEfficiency(512), 0.74, 1e-12);
  EXPECT_DOUBLE_EQ(CeilingEfficiency(int64_t{1} << 40), 0.60);
}

TEST(Scaling, HoursOfAHundredHourRun) {
  const std::pair<int64_t, double> cases[] = {{1, 100},  {2, 55.6}, {3, 38.3}, {4, 29.4},
                                              {6, 20.3}, {8, 15.6}, {16, 7.9}};
  for (const auto& [n, hours] : cases) EXPECT_NEAR(Hours(100, n, CeilingEfficiency(n)), hours, 0.05) << n;
  EXPECT_NEAR(Cost(Hours(100, 2, 0.9), 2, 255), 28'333, 1);
  EXPECT_NEAR(Cost(Hours(100, 4, 0.85), 4, 255), 30'000, 1);
  EXPECT_NEAR(Cost(Hours(100, 8, 0.8), 8, 255), 31'875, 1);
}

// Compute seconds, communication seconds and physical efficiency, worked out by hand from the formulas.
TEST(Scaling, WorkedExamples) {
  StepTraffic ddp = Fsdp7b(8);
  ddp.strategy = api::Strategy::kDdp;
  ddp.parameters = 1.3e9;
  ddp.layers = 24;
  ddp.tokens = 4096;
  EXPECT_NEAR(ComputeSeconds(ddp), 0.071787, 1e-6);
  EXPECT_NEAR(CommunicationSeconds(ddp), 0.017589, 1e-6);
  EXPECT_NEAR(PhysicalEfficiency(ddp), 0.918942, 1e-5);

  const StepTraffic fsdp = Fsdp7b(8);
  EXPECT_NEAR(ComputeSeconds(fsdp), 0.773091, 1e-6);
  EXPECT_NEAR(CommunicationSeconds(fsdp), 0.104368, 1e-6);
  EXPECT_NEAR(PhysicalEfficiency(fsdp), 0.953652, 1e-5);

  StepTraffic large = Fsdp7b(16);
  large.parameters = 70e9;
  large.layers = 80;
  large.inter_bandwidth = 37.5e9;
  EXPECT_NEAR(ComputeSeconds(large), 7.730907, 1e-5);
  EXPECT_NEAR(CommunicationSeconds(large), 1.111894, 1e-5);
  EXPECT_NEAR(PhysicalEfficiency(large), 0.950772, 1e-5);

  StepTraffic small;
  small.strategy = api::Strategy::kDdp;
  small.parameters = 125e6;
  small.layers = 12;
  small.tokens = 16384;
  small.gpus = 2;
  small.peak_flops = 165.2e12;
  small.mfu = 0.45;
  small.intra_bandwidth = 31.5e9 * 0.30;
  small.intra_latency = 5.7e-6;
  EXPECT_NEAR(ComputeSeconds(small), 0.165295, 1e-6);
  EXPECT_NEAR(CommunicationSeconds(small), 0.026569, 1e-6);
  EXPECT_NEAR(PhysicalEfficiency(small), 0.945300, 1e-5);
}

TEST(Scaling, NvlinkNodesReachTheCeilingAndASharedNetworkDoesNot) {
  for (int64_t n : {2, 4, 8}) EXPECT_DOUBLE_EQ(PlannedEfficiency(Fsdp7b(n)), CeilingEfficiency(n)) << n;
  const std::pair<int64_t, double> figures[] = {{2, 0.973}, {4, 0.960}, {8, 0.954}};
  for (const auto& [n, e] : figures) EXPECT_NEAR(PhysicalEfficiency(Fsdp7b(n)), e, 1e-3) << n;
  StepTraffic shared = Fsdp7b(16);
  shared.inter_bandwidth = 11e9 / 8;  // one 100 GbE port for a node of 8
  EXPECT_NEAR(PlannedEfficiency(shared), 0.38, 0.02);
  StepTraffic ports = Fsdp7b(16);
  ports.inter_bandwidth = 50e9 * 0.75;
  EXPECT_NEAR(PhysicalEfficiency(ports), 0.949, 2e-3);
  ports.gpus = 128;
  EXPECT_NEAR(PhysicalEfficiency(ports), 0.919, 2e-3);
}

TEST(Scaling, PcieFiguresOfTheReference) {
  StepTraffic s = Fsdp7b(2);
  s.peak_flops = 756e12;
  s.intra_bandwidth = 63e9 * 0.60;
  s.intra_latency = 5.7e-6;
  const std::pair<int64_t, double> h100_pcie[] = {{2, 0.835}, {4, 0.771}, {8, 0.742}};
  for (const auto& [n, e] : h100_pcie) {
    s.gpus = n;
    EXPECT_NEAR(PlannedEfficiency(s), e, 2e-3) << n;
  }
  s.peak_flops = 362e12;  // L40S
  s.intra_bandwidth = 31.5e9 * 0.60;
  const std::pair<int64_t, double> l40s[] = {{2, 0.841}, {4, 0.779}, {8, 0.751}};
  for (const auto& [n, e] : l40s) {
    s.gpus = n;
    EXPECT_NEAR(PlannedEfficiency(s), e, 2e-3) << n;
  }
}

TEST(Scaling, HoursFallWithEveryGpuUpToEight) {
  for (int64_t n = 1; n < 8; ++n) {
    EXPECT_GT(Hours(100, n, CeilingEfficiency(n)), Hours(100, n + 1, CeilingEfficiency(n + 1))) << n;
  }
}

TEST(Scaling, PhysicalEfficiencyFallsWithGpusAndRisesWithBandwidthTokensAndAccumulation) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  const api::Strategy strategies[] = {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kZero2,
                                      api::Strategy::kFsdp};
  for (int i = 0; i < 2000; ++i) {
    StepTraffic s;
    s.strategy = strategies[random() % 4];
    s.parameters = std::pow(10, uniform(7, 11));
    s.layers = 1 + static_cast<int64_t>(random() % 100);
    s.tokens = 128 << (random() % 9);
    s.accumulation = 1 + static_cast<int64_t>(random() % 16);
    s.gpus = 1 + static_cast<int64_t>(random() % 8);
    s.peak_flops = uniform(50e12, 2500e12);
    s.intra_bandwidth = uniform(5e9, 700e9);
    s.inter_bandwidth = uniform(1e9, 50e9);
    const double e = PhysicalEfficiency(s);
    ASSERT_GT(e, 0);
    ASSERT_LE(e, 1);
    StepTraffic more = s;
    more.gpus += 1;
    EXPECT_LE(PhysicalEfficiency(more), e);
    more = s;
    more.intra_bandwidth *= 2;
    more.inter_bandwidth *= 2;
    EXPECT_GE(PhysicalEfficiency(more), e);
    more = s;
    more.tokens *= 2;
    EXPECT_GE(PhysicalEfficiency(more), e);
    more = s;
    more.accumulation *= 2;
    EXPECT_GE(PhysicalEfficiency(more), e - 1e-12);
    EXPECT_LE(PlannedEfficiency(s), CeilingEfficiency(s.gpus));
  }
}

TEST(Scaling, TokensGiveTheHoursOfOneGpu) {
  // 6 * 7e9 * 1e12 / (989e12 * 0.4) s
  EXPECT_NEAR(SingleGpuHours(7e9, 1e12, 989e12, 0.4, false), 29'491, 1);
  EXPECT_NEAR(SingleGpuHours(7e9, 1e12, 989e12, 0.4, true) / SingleGpuHours(7e9, 1e12, 989e12, 0.4, false), 4.0 / 3,
              1e-12);
}

}  // namespace
}  // namespace trainyard::sizing
