#include "trainer/data/mixture.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace trainyard::data {
namespace {

std::vector<int64_t> Counts(const std::vector<double>& weights) { return Mixture::Make(weights).value().counts(); }

// Walks through a mixture and holds it to its promise at every n.
void ExpectProportions(const Mixture& mixture, int64_t length) {
  const auto period = static_cast<double>(mixture.period());
  std::vector<int64_t> taken(mixture.counts().size(), 0);
  std::vector<double> low(taken.size(), 0), high(taken.size(), 0);
  for (int64_t n = 0; n < length; ++n) {
    const MixturePlace place = mixture.At(n);
    auto& before = taken[static_cast<size_t>(place.source)];
    ASSERT_EQ(place.position, before) << "sequence " << n;
    ++before;
    for (size_t k = 0; k < taken.size(); ++k) {
      const double share = static_cast<double>(mixture.counts()[k]) / period;
      const double error = static_cast<double>(taken[k]) - static_cast<double>(n + 1) * share;
      ASSERT_LT(std::abs(error), 1) << "source " << k << " after " << n + 1;
      low[k] = std::min(low[k], error);
      high[k] = std::max(high[k], error);
    }
  }
  // A window is the difference of two prefixes.
  for (size_t k = 0; k < taken.size(); ++k) EXPECT_LT(high[k] - low[k], 2) << "source " << k;
}

TEST(Mixture, WeightsBecomeTheSmallestWholeNumbers) {
  EXPECT_EQ(Counts({5}), (std::vector<int64_t>{1}));
  EXPECT_EQ(Counts({0.7, 0.3}), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(Counts({2, 4, 6}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(Counts({0.1, 1.1, 0.025}), (std::vector<int64_t>{4, 44, 1}));
  EXPECT_EQ(Counts({1e9, 3e9}), (std::vector<int64_t>{1, 3}));
}

TEST(Mixture, LongPeriodsAreRounded) {
  const std::vector<std::vector<double>> lists = {
      {3.14159265358979, 2.71828182845905, 1}, {1, 1e-9}, {65535, 2}, {1e300, 1e300, 3e299}};
  for (const auto& weights : lists) {
    const auto counts = Counts(weights);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), Mixture::kMaxPeriod);
    double sum = 0;
    for (const double weight : weights) sum += weight / weights[0];
    for (size_t k = 0; k < weights.size(); ++k) {
      EXPECT_GE(counts[k], 1);
      EXPECT_NEAR(static_cast<double>(counts[k]) / Mixture::kMaxPeriod, weights[k] / weights[0] / sum,
                  static_cast<double>(weights.size()) / Mixture::kMaxPeriod);
    }
  }
}

TEST(Mixture, TwoSourcesAlternate) {
  const Mixture mixture = Mixture::Make({1, 2}).value();
  EXPECT_EQ(mixture.period(), 3);
  std::string order;
  for (int64_t n = 0; n < 9; ++n) order += std::to_string(mixture.At(n).source);
  EXPECT_EQ(order, "101101101");
  const MixturePlace far = mixture.At(3'000'000'000'001);
  EXPECT_EQ(far.source, 0);
  EXPECT_EQ(far.position, 1'000'000'000'000);
}

TEST(Mixture, EveryPrefixHasItsShares) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(1 + random() % 9);
    for (double& weight : weights) weight = 1 + static_cast<double>(random() % (round % 2 == 0 ? 12 : 900));
    const Mixture mixture = Mixture::Make(weights).value();
    ExpectProportions(mixture, 2 * mixture.period() + 5);
  }
  ExpectProportions(Mixture::Make({3.14159265358979, 2.71828182845905, 1, 0.001}).value(), 2 * Mixture::kMaxPeriod);
  ExpectProportions(Mixture::Make(std::vector<double>(300, 2)).value(), 900);
}

TEST(Mixture, RefusesWhatIsNoWeight) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_FALSE(Mixture::Make({1, bad})) << bad;
  }
  EXPECT_FALSE(Mixture::Make({}));
}

}  // namespace
}  // namespace trainyard::data
