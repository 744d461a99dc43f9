// The random stream of the initial weights, and the shard rule.
#include "trainer/engine/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace trainyard::engine {
namespace {

TEST(Init, PhiloxGivesThePublishedAnswers) {
  using A = std::array<uint32_t, 4>;
  // kat_vectors of Random123.
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (A{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (A{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (A{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Init, UniformIsEvenWithinItsBoundHoweverItIsCut) {
  const ParamSpec spec{"adapter", {64, 33}, Init::kUniform, 0.25};
  std::vector<double> whole(64 * 33), part(7);
  InitElements(spec, 5, 0, 64 * 33, whole.data());
  double sum = 0, squares = 0;
  for (const double x : whole) {
    ASSERT_LE(std::abs(x), 0.25);
    sum += x, squares += x * x;
  }
  const double n = 64 * 33, deviation = 0.25 / std::numbers::sqrt3;
  EXPECT_LT(std::abs(sum / n), 4 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 0.02 * deviation);
  for (int64_t lo : {0, 1, 33, 500}) {
    InitElements(spec, 5, lo, lo + 7, part.data());
    for (int64_t i = 0; i < 7; ++i) ASSERT_EQ(part[i], whole[lo + i]);
  }
}

TEST(Init, NormalAgreesWithTheLibrarysFunctions) {
  for (uint32_t i = 0; i < 20000; ++i) {
    const auto r = Philox({i, 1, 2, 3}, {4, 5});
    const double u = (static_cast<double>((uint64_t{r[0]} << 32 | r[1]) >> 11) + 1.0) * 0x1p-53;
    const double t = static_cast<double>((uint64_t{r[2]} << 32 | r[3]) >> 11) * 0x1p-53 * 2.0 * std::numbers::pi;
    const auto pair = NormalPair(r);
    ASSERT_NEAR(pair[0], std::sqrt(-2.0 * std::log(u)) * std::cos(t), 1e-14);
    ASSERT_NEAR(pair[1], std::sqrt(-2.0 * std::log(u)) * std::sin(t), 1e-14);
  }
  EXPECT_TRUE(std::isfinite(NormalPair({0, 0, 0, 0})[0]));
  EXPECT_TRUE(std::isfinite(NormalPair({~0u, ~0u, ~0u, ~0u})[0]));
}

TEST(Init, MomentsAreThoseOfANormal) {
  const ParamSpec spec{"w", {400, 500}, Init::kNormal, 0.02};
  std::vector<float> w(200000);
  InitElements(spec, 1, 0, 200000, w.data());
  double sum = 0, square = 0, fourth = 0;
  for (float x : w) sum += x, square += x * x, fourth += std::pow(x / 0.02, 4);
  EXPECT_NEAR(sum / 200000, 0.0, 2e-4);
  EXPECT_NEAR(std::sqrt(square / 200000), 0.02, 2e-4);
  EXPECT_NEAR(fourth / 200000, 3.0, 0.1);
}

TEST(Init, AnyRangeIsAPieceOfTheWhole) {
  const ParamSpec spec{"w", {7, 5}, Init::kNormal, 1.0};
  std::vector<float> whole(35);
  InitElements(spec, 9, 0, 35, whole.data());
  for (int64_t lo = 0; lo <= 35; ++lo) {
    for (int64_t hi = lo; hi <= 35; ++hi) {
      std::vector<float> part(hi - lo);
      InitElements(spec, 9, lo, hi, part.data());
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + lo)) << lo << " to " << hi;
    }
  }
  std::vector<double> wide(35);
  InitElements(spec, 9, 0, 35, wide.data());
  for (int i = 0; i < 35; ++i) ASSERT_EQ(wide[i], static_cast<double>(whole[i]));
}

TEST(Init, NameAndSeedGiveOtherStreamsAndConstantsStay) {
  std::vector<float> a(8), b(8), c(8), ones(3);
  InitElements({"a", {8}, Init::kNormal, 1.0}, 1, 0, 8, a.data());
  InitElements({"b", {8}, Init::kNormal, 1.0}, 1, 0, 8, b.data());
  InitElements({"a", {8}, Init::kNormal, 1.0}, 2, 0, 8, c.data());
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  InitElements({"n", {3}, Init::kOnes}, 1, 0, 3, ones.data());
  EXPECT_EQ(ones, (std::vector<float>{1, 1, 1}));
}

TEST(ShardRule, TilesEveryRowOnceAndGivesLateRanksNone) {
  for (int64_t rows = 1; rows <= 20; ++rows) {
    for (int world = 1; world <= 9; ++world) {
      int64_t next = 0;
      for (int r = 0; r < world; ++r) {
        const RowRange range = ShardRows(rows, r, world);
        EXPECT_EQ(range.lo, next);
        EXPECT_LE(range.size(), (rows + world - 1) / world);
        next = range.hi;
      }
      EXPECT_EQ(next, rows);
    }
  }
  EXPECT_EQ(ShardRows(10, 3, 4), (RowRange{9, 10}));
  EXPECT_EQ(ShardRows(2, 3, 4).size(), 0);
}

}  // namespace
}  // namespace trainyard::engine
