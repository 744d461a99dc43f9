// Sums whose bits do not depend on their order: gradients in fixed point, sums of squares without rounding.
#include "trainer/engine/fixed_point.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "trainer/engine/exact_sum.h"
#include "trainer/engine/gradient_sums.h"
#include "trainer/engine/row_squares.h"

namespace trainyard::engine {
namespace {

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(std::abs(x)); }

// Numbers of very different size, both signs, zeros and denormals among them, none of 2^`top` or more.
std::vector<float> Numbers(std::mt19937_64& random, int64_t n, int top, int span) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < n; ++i) {
    const auto exponent = top - 24 - static_cast<int>(random() % static_cast<uint64_t>(span));
    const auto mantissa = static_cast<float>(random() & 0xffffff);  // below 2^24
    numbers.push_back(random() % 17 == 0 ? 0.0F : std::ldexp(random() % 2 != 0 ? mantissa : -mantissa, exponent));
  }
  return numbers;
}

uint64_t Seed() {
  const uint64_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST(FixedPoint, AnAddendIsTheNearestIntegerAndTiesGoToEven) {
  const std::vector<float> x = {0.0F,  1.0F,  -1.0F, 0.5F,   1.5F, 2.5F,  -0.5F, -1.5F,
                                -2.5F, 0.75F, 0.25F, -0.75F, 3e8F, -3e8F, 1e-40F};
  const std::vector<int64_t> expected = {0, 1, -1, 0, 2, 2, 0, -2, -2, 1, 0, -1, 300000000, -300000000, 0};
  std::vector<int64_t> sums(x.size(), 77);
  EXPECT_EQ(Quantise(x.data(), static_cast<int64_t>(x.size()), 0, false, sums.data()), Bits(3e8F));
  EXPECT_EQ(sums, expected);
  Quantise(x.data(), static_cast<int64_t>(x.size()), 1, true, sums.data());
  EXPECT_EQ(sums[3], 0 + 1);
  EXPECT_EQ(sums[12], 900000000);
}

TEST(FixedPoint, MagnitudeIsTheFirstPowerOfTwoAboveAll) {
  EXPECT_EQ(MagnitudeOf(Bits(0.0F)), kAllZero);
  EXPECT_EQ(MagnitudeOf(Bits(1.0F)), 1);
  EXPECT_EQ(MagnitudeOf(Bits(std::nextafter(1.0F, 0.0F))), 0);
  EXPECT_EQ(MagnitudeOf(Bits(-6.0F)), 3);
  EXPECT_EQ(MagnitudeOf(Bits(std::numeric_limits<float>::max())), 128);
  EXPECT_EQ(MagnitudeOf(Bits(std::numeric_limits<float>::min())), -125);
  EXPECT_EQ(MagnitudeOf(Bits(std::numeric_limits<float>::denorm_min())), -148);
  EXPECT_EQ(MagnitudeOf(Bits(std::numeric_limits<float>::infinity())), kNotFinite);
  EXPECT_EQ(MagnitudeOf(Bits(std::numeric_limits<float>::quiet_NaN())), kNotFinite);
}

TEST(FixedPoint, AsManyOfTheLargestAddendsAsWereAnnouncedDoNotOverflow) {
  for (const int64_t addends : {1, 2, 3, 4096, 4097, 100000, 1 << 20}) {
    const int bits = AddendBits(addends);
    EXPECT_LE(bits, 50);
    EXPECT_GE(bits, 42);
    const __int128 most = static_cast<__int128>(addends) << bits;
    EXPECT_LE(most, static_cast<__int128>(1) << 62) << addends;
  }
  EXPECT_THROW(AddendBits(0), std::invalid_argument);
  EXPECT_THROW(AddendBits((1 << 20) + 1), std::invalid_argument);
}

TEST(FixedPoint, AShiftFitsWhatItWasMadeForAndSomeGrowth) {
  for (const int bits : {42, 50}) {
    for (int magnitude = -148; magnitude <= 128; ++magnitude) {
      const int shift = ShiftFor(magnitude, bits);
      for (int grown = 0; grown <= 8; ++grown) EXPECT_EQ(Judge(magnitude + grown, shift, bits), Fit::kFits);
      EXPECT_EQ(Judge(magnitude + 9, shift, bits), Fit::kOutgrown);
      EXPECT_EQ(Judge(magnitude - (bits - 8 - 26), shift, bits), Fit::kFits);
      EXPECT_EQ(Judge(magnitude - (bits - 8 - 26) - 1, shift, bits), Fit::kTooCoarse);
      EXPECT_EQ(Judge(kAllZero, shift, bits), Fit::kFits);
      EXPECT_EQ(Judge(kNotFinite, shift, bits), Fit::kFits) << "no shift would help";
    }
  }
  EXPECT_EQ(Judge(6, FirstShift(50), 50), Fit::kFits);
  EXPECT_EQ(Judge(-18, FirstShift(50), 50), Fit::kFits);
}

// Random gradients of several micro-batches: any order and grouping gives the same integers, and they are the nearest
// ones to the exact values.
TEST(FixedPoint, AnyOrderAndGroupingGivesTheSameBits) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 200; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(random() % 67);
    const int addends = 1 + static_cast<int>(random() % 9);
    const int top = static_cast<int>(random() % 200) - 100;
    std::vector<std::vector<float>> gradients;
    for (int a = 0; a < addends; ++a) gradients.push_back(Numbers(random, n, top, 60));
    const int shift = ShiftFor(top, AddendBits(addends));
    std::vector<int64_t> sums(static_cast<size_t>(n));
    uint32_t largest = 0;
    for (int a = 0; a < addends; ++a) {
      largest = std::max(largest, Quantise(gradients[a].data(), n, shift, a > 0, sums.data()));
    }
    EXPECT_TRUE(MagnitudeOf(largest) == kAllZero || MagnitudeOf(largest) <= top);
    // Cut at a random place, added backwards, in two groups.
    const int64_t cut = static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1));
    std::vector<int64_t> left(static_cast<size_t>(n), 0), right(static_cast<size_t>(n), 0);
    for (int a = addends; a-- > 0;) {
      auto& group = a % 2 == 0 ? left : right;
      Quantise(gradients[a].data(), cut, shift, true, group.data());
      Quantise(gradients[a].data() + cut, n - cut, shift, true, group.data() + cut);
    }
    std::vector<float> values(static_cast<size_t>(n));
    Dequantise(sums.data(), n, shift, values.data());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sums[i], left[i] + right[i]) << i;
      long double exact = 0;
      for (const auto& gradient : gradients) exact += gradient[i];
      const long double error = std::abs(std::ldexp(static_cast<long double>(sums[i]), -shift) - exact);
      ASSERT_LE(error, std::ldexp(0.5L * addends, -shift) * 1.0001L) << i;
      ASSERT_EQ(values[i], static_cast<float>(static_cast<double>(sums[i]) * std::ldexp(1.0, -shift)));
    }
  }
}

TEST(FixedPoint, BfloatAndOtherDevicesGiveTheIntegersOfFloat) {
  std::mt19937_64 random(Seed());
  const std::vector<float> numbers = Numbers(random, 100003, 3, 40);
  const at::Tensor x = at::tensor(at::ArrayRef<float>(numbers));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor given = x.to(type);
    const at::Tensor expected = at::empty({given.numel()}, at::kLong), got = at::empty({given.numel()}, at::kLong);
    for (const bool add : {false, true}) {
      const uint32_t largest = QuantiseOnCpu(given, 41, add, expected);
      EXPECT_EQ(largest, Bits(given.to(at::kFloat).abs().max().item<float>()));
      EXPECT_EQ(Bits(QuantiseByOperations(given, 41, add, got).item<float>()), largest);
      EXPECT_TRUE(at::equal(got, expected)) << type << (add ? " added" : "");
    }
    at::Tensor bad = given.clone();
    bad[77] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(MagnitudeOf(QuantiseOnCpu(bad, 41, false, got)), kNotFinite);
    EXPECT_EQ(MagnitudeOf(Bits(QuantiseByOperations(bad, 41, false, got).item<float>())), kNotFinite);
  }
}

TEST(ExactSum, IsExactWhateverTheOrderAndTheSize) {
  ExactSum sum;
  for (const double x : {1e300, 1.0, 1e-300, std::numeric_limits<double>::denorm_min()}) sum.Add(x);
  EXPECT_EQ(sum.Value(), 1e300);
  ExactSum tiny;
  for (int i = 0; i < 3; ++i) tiny.Add(std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(tiny.Value(), 3 * std::numeric_limits<double>::denorm_min());
  ExactSum big;
  big.Add(std::numeric_limits<double>::max());
  EXPECT_EQ(big.Value(), std::numeric_limits<double>::max());
  EXPECT_EQ(ExactSum().Value(), 0.0);
  // 2^53 + 1 + 1: adding in double would lose both.
  ExactSum ones;
  for (const double x : {0x1p53, 1.0, 1.0}) ones.Add(x);
  EXPECT_EQ(ones.Value(), 0x1p53 + 2);
  ones.Add(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(ones.Value()));
}

TEST(ExactSum, RandomNumbersDividedAmongRanks) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 50; ++round) {
    // Whole numbers of 2^-80, so that 128 bits hold the sum.
    std::vector<double> numbers;
    unsigned __int128 exact = 0;
    for (int i = 0; i < 1000; ++i) {
      const uint64_t mantissa = random() >> 11;
      const int up = static_cast<int>(random() % 60);
      numbers.push_back(std::ldexp(static_cast<double>(mantissa), up - 80));
      exact += static_cast<unsigned __int128>(mantissa) << up;
    }
    std::shuffle(numbers.begin(), numbers.end(), random);
    const int ranks = 1 + static_cast<int>(random() % 8);
    std::vector<ExactSum> parts(static_cast<size_t>(ranks));
    for (const double x : numbers) parts[random() % static_cast<uint64_t>(ranks)].Add(x);
    for (int r = 1; r < ranks; ++r) {
      for (int w = 0; w < ExactSum::kWords; ++w) parts[0].words()[w] += parts[r].words()[w];
    }
    const long double value = std::ldexp(static_cast<long double>(exact), -80);  // 64 bits
    const double got = parts[0].Value();
    EXPECT_LE(std::abs(static_cast<long double>(got) - value), std::ldexp(value, -52)) << "round " << round;
    ExactSum once;
    std::sort(numbers.begin(), numbers.end());
    for (const double x : numbers) once.Add(x);
    EXPECT_EQ(once.Value(), got);
  }
}

TEST(RowSquares, DependOnTheRowAlone) {
  std::mt19937_64 random(Seed());
  for (const int64_t size : {1, 2, 7, 64, 100}) {
    const int64_t rows = 23;
    const auto numbers = Numbers(random, rows * size, 2, 30);
    const at::Tensor x = at::tensor(at::ArrayRef<float>(numbers)).view({rows, size});
    for (auto* squares : {&RowSquares, &RowSquaresByHalves}) {
      const std::vector<double> all = squares(x);
      ASSERT_EQ(static_cast<int64_t>(all.size()), rows);
      for (const int64_t cut : {1, 11, 22}) {
        std::vector<double> parts = squares(x.narrow(0, 0, cut));
        const std::vector<double> rest = squares(x.narrow(0, cut, rows - cut));
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(parts, all);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const double plain = x[r].to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(all[r], plain, 1e-14 * plain);
      }
    }
    EXPECT_TRUE(RowSquares(x.narrow(0, 0, 0)).empty());
  }
}

}  // namespace
}  // namespace trainyard::engine
