#include "trainer/data/sampler.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::data {
namespace {

TEST(Sampler, CountsSamplesThatShareTheirLastToken) {
  EXPECT_EQ(SampleCount(0, 4), 0);
  EXPECT_EQ(SampleCount(4, 4), 0);
  EXPECT_EQ(SampleCount(5, 4), 1);
  EXPECT_EQ(SampleCount(8, 4), 1);
  EXPECT_EQ(SampleCount(9, 4), 2);
  EXPECT_EQ(SampleCount(100, 0), 0);
}

TEST(Sampler, EachSampleComesOncePerEpoch) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 15, 16, 17, 63, 64, 65, 100, 1000, 4095, 4096, 4097, 100003}) {
    for (int64_t epoch : {0, 1, 5}) {
      std::vector<bool> seen(static_cast<size_t>(n), false);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t sample = SampleIndex(42, n, epoch * n + i);
        ASSERT_GE(sample, 0);
        ASSERT_LT(sample, n);
        ASSERT_FALSE(seen[static_cast<size_t>(sample)]) << "n " << n << " epoch " << epoch << " sample " << sample;
        seen[static_cast<size_t>(sample)] = true;
      }
    }
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpoch) {
  constexpr int64_t kSamples = 10000;
  int same_seed = 0;
  int same_epoch = 0;
  int in_place = 0;
  int ascending = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    same_seed += SampleIndex(1, kSamples, i) == SampleIndex(2, kSamples, i);
    same_epoch += SampleIndex(1, kSamples, i) == SampleIndex(1, kSamples, i + kSamples);
    in_place += SampleIndex(1, kSamples, i) == i;
    ascending += i > 0 && SampleIndex(1, kSamples, i) > SampleIndex(1, kSamples, i - 1);
  }
  // Random permutations agree in one place on average; 12 is beyond one in 10^9.
  EXPECT_LT(same_seed, 12);
  EXPECT_LT(same_epoch, 12);
  EXPECT_LT(in_place, 12);
  // Half ascend, with a standard deviation of sqrt(n / 12) = 29.
  EXPECT_NEAR(ascending, kSamples / 2, 180);
}

// The first tenth of an epoch must look like a uniform draw of all samples: chi-squared over 100 bins.
TEST(Sampler, EveryStretchSpreadsOverTheData) {
  constexpr int64_t kSamples = 100000;
  std::vector<int> bins(100, 0);
  for (int64_t i = 0; i < kSamples / 10; ++i) {
    ++bins[static_cast<size_t>(SampleIndex(7, kSamples, i) / 1000)];
  }
  double chi = 0;
  for (int count : bins) {
    chi += (count - 100.0) * (count - 100.0) / 100.0;
  }
  EXPECT_LT(chi, 160);
  EXPECT_GT(chi, 45);
}

// Frozen: a change would make every resumed job repeat and skip samples.
TEST(Sampler, OrderIsFrozen) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 8; ++i) {
    order.push_back(SampleIndex(1234, 1000, i));
  }
  EXPECT_EQ(order, (std::vector<int64_t>{134, 840, 972, 174, 705, 474, 224, 927}));
}

}  // namespace
}  // namespace trainyard::data
