#include "trainer/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::generate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int64_t> Draws(const SamplingOptions& options, const std::vector<float>& logits, int64_t count) {
  Sampler sampler(options);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(sampler.Draw(logits, i).value());
  return out;
}

// Shares of the draws, by token.
std::map<int64_t, double> Shares(const SamplingOptions& options, const std::vector<float>& logits,
                                 int64_t draws = 40'000) {
  std::map<int64_t, double> shares;
  for (const int64_t token : Draws(options, logits, draws)) shares[token] += 1.0 / static_cast<double>(draws);
  return shares;
}

// Natural logarithms of 1, 2, 4, 8 fifteenths, mixed.
const std::vector<float> kFifteenths = {std::log(2.0F), std::log(8.0F), std::log(1.0F), std::log(4.0F)};
constexpr double kNear = 0.01;  // four standard deviations of the share of 40,000 draws

TEST(Sampler, WithoutTemperatureTheLikeliestTheFirstOfEquals) {
  EXPECT_THAT(Draws({}, {1, 3, -2, 3, -kInfinity}, 2), ElementsAre(1, 1));
  EXPECT_THAT(Draws({.temperature = 2, .top_k = 1}, {-5, -9, -4.5}, 2), ElementsAre(2, 2));
}

TEST(Sampler, DrawsAsOftenAsIsLikely) {
  const auto shares = Shares({.temperature = 1, .seed = 3}, kFifteenths);
  EXPECT_NEAR(shares.at(0), 2 / 15.0, kNear);
  EXPECT_NEAR(shares.at(1), 8 / 15.0, kNear);
  EXPECT_NEAR(shares.at(2), 1 / 15.0, kNear);
  EXPECT_NEAR(shares.at(3), 4 / 15.0, kNear);
  // At half the temperature odds are squared: 4, 64, 1, 16 of 85.
  const auto colder = Shares({.temperature = 0.5, .seed = 4}, kFifteenths);
  EXPECT_NEAR(colder.at(1), 64 / 85.0, kNear);
  EXPECT_NEAR(colder.at(3), 16 / 85.0, kNear);
}

TEST(Sampler, TopKLeavesTheLikeliest) {
  const auto shares = Shares({.temperature = 1, .top_k = 2}, kFifteenths);
  EXPECT_EQ(shares.size(), 2U);
  EXPECT_NEAR(shares.at(1), 8 / 12.0, kNear);
  EXPECT_NEAR(shares.at(3), 4 / 12.0, kNear);
  EXPECT_EQ(Shares({.temperature = 1, .top_k = 9}, kFifteenths).size(), 4U);
}

// 8/15 are not enough for 0.6, 12/15 are; of two that top-k left, 8/12 are enough for 0.6.
TEST(Sampler, TopPLeavesTheFewestWithEnoughTogether) {
  const auto shares = Shares({.temperature = 1, .top_p = 0.6}, kFifteenths);
  EXPECT_EQ(shares.size(), 2U);
  EXPECT_NEAR(shares.at(1), 8 / 12.0, kNear);
  EXPECT_EQ(Shares({.temperature = 1, .top_p = 0.5}, kFifteenths).size(), 1U);
  EXPECT_EQ(Shares({.temperature = 1, .top_k = 2, .top_p = 0.6}, kFifteenths).size(), 1U);
}

// Against all of them put in order: more than one stretch of the partial sort.
TEST(Sampler, TopPOfManyTokensIsThatOfASortedList) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(5000);
  for (float& x : logits) x = normal(random);
  std::vector<double> odds;
  for (const float x : logits) odds.push_back(std::exp(static_cast<double>(x)));
  std::vector<double> sorted = odds;
  std::sort(sorted.rbegin(), sorted.rend());
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; sum < 0.9 * total; ++kept) sum += sorted[kept];
  ASSERT_GT(kept, 1500U);
  const auto shares = Shares({.temperature = 1, .top_p = 0.9, .seed = seed}, logits, 3000);
  // Relative to the likeliest there, to one here: the last one may be off by a rounding.
  for (const auto& [token, share] : shares) EXPECT_GE(odds[token], sorted[kept - 1] * (1 - 1e-9)) << token;
  EXPECT_GT(shares.size(), 500U);
}

TEST(Sampler, TheSameSeedAndPositionDrawTheSame) {
  const SamplingOptions options{.temperature = 1, .seed = 42};
  const auto all = Draws(options, kFifteenths, 50);
  EXPECT_EQ(Draws(options, kFifteenths, 50), all);
  // Nothing but the position counts: a sampler that begins later goes on the same.
  Sampler later(options);
  for (int64_t i = 20; i < 50; ++i) EXPECT_EQ(later.Draw(kFifteenths, i).value(), all[i]);
  EXPECT_NE(Draws({.temperature = 1, .seed = 43}, kFifteenths, 50), all);
  EXPECT_NE(Draws({.temperature = 1, .seed = 42 + (uint64_t{1} << 32)}, kFifteenths, 50), all);
}

// The stream itself: a change of it would change everybody's texts. The first is the known answer of Philox4x32-10 for
// zeros, 0x6627e8d5 of 2^32.
TEST(Sampler, DrawsAlwaysTheSame) {
  EXPECT_THAT(Draws({.temperature = 1, .seed = 0}, std::vector<float>(1000, 0.0F), 6),
              ElementsAre(399, 972, 19, 787, 934, 450));
}

TEST(Sampler, NeverDrawsWhatIsImpossible) {
  const auto shares = Shares({.temperature = 100}, {-kInfinity, 0, -kInfinity, 1});
  EXPECT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares.count(0) + shares.count(2), 0U);
}

TEST(Sampler, RefusesScoresThatAreNone) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    const auto error = [&](std::vector<float> logits) {
      const Result<int64_t> drawn = sampler.Draw(logits, 0);
      return drawn ? std::string() : drawn.error().message;
    };
    EXPECT_THAT(error({1, std::nanf(""), 2}), HasSubstr("score of token 1 is not a number: its weights are damaged"));
    EXPECT_THAT(error({1, 2, kInfinity}), HasSubstr("score of token 2 is infinite"));
    EXPECT_THAT(error({-kInfinity, -kInfinity}), HasSubstr("all minus infinity"));
  }
}

}  // namespace
}  // namespace trainyard::generate
