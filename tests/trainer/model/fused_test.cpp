// The one-pass kernels against the same formulas in double, element by element.
#include "trainer/model/fused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace trainyard::model::fused {
namespace {

constexpr uint32_t kSeed = 7;  // of all values here

std::vector<float> Random(int64_t n, double scale = 1.0) {
  static std::mt19937 random(kSeed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = static_cast<float>(normal(random));
  return values;
}

void ExpectNear(const std::vector<float>& got, const std::function<double(int64_t)>& want, double tolerance) {
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = want(static_cast<int64_t>(i));
    ASSERT_NEAR(got[i], w, tolerance * std::max(1.0, std::abs(w))) << "element " << i << ", seed " << kSeed;
  }
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Widths with and without a rest after the vectors.
class Rms : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, Rms, testing::Values(1, 7, 16, 100, 256));

TEST_P(Rms, ValuesAndGradients) {
  const int64_t n = 5, h = GetParam();
  const auto x = Random(n * h), w = Random(h), g = Random(n * h);
  std::vector<float> rstd(n), y(n * h), gx(n * h), gw(h, 2.0F);
  RmsReciprocal(x.data(), n, h, 1e-5, rstd.data());
  RmsApply(x.data(), w.data(), rstd.data(), n, h, y.data());
  RmsGrad(g.data(), x.data(), w.data(), rstd.data(), n, h, gx.data(), gw.data());
  std::vector<double> r(n), mean(n);
  for (int64_t i = 0; i < n; ++i) {
    double squares = 0;
    for (int64_t k = 0; k < h; ++k) squares += static_cast<double>(x[i * h + k]) * x[i * h + k];
    r[i] = 1.0 / std::sqrt(squares / static_cast<double>(h) + 1e-5);
    for (int64_t k = 0; k < h; ++k) {
      mean[i] += static_cast<double>(g[i * h + k]) * w[k] * x[i * h + k] * r[i] / static_cast<double>(h);
    }
  }
  ExpectNear(rstd, [&](int64_t i) { return r[i]; }, 1e-6);
  ExpectNear(y, [&](int64_t i) { return x[i] * r[i / h] * w[i % h]; }, 1e-6);
  ExpectNear(gx, [&](int64_t i) { return r[i / h] * (1.0 * g[i] * w[i % h] - x[i] * r[i / h] * mean[i / h]); }, 1e-5);
  ExpectNear(
      gw,
      [&](int64_t k) {
        double sum = 2.0;
        for (int64_t i = 0; i < n; ++i) sum += 1.0 * g[i * h + k] * x[i * h + k] * r[i];
        return sum;
      },
      1e-5);
}

TEST(Fused, RotateTurnsAndTurnsBack) {
  const int64_t heads = 3, half = 10, stride = 25;
  const auto x = Random(heads * stride);
  std::vector<float> cos, sin, y(heads * 2 * half), back(heads * 2 * half);
  for (int64_t k = 0; k < half; ++k) cos.push_back(std::cos(0.3F * k)), sin.push_back(std::sin(0.3F * k));
  Rotate(x.data(), stride, cos.data(), sin.data(), 1.0F, heads, half, y.data());
  ExpectNear(
      y,
      [&](int64_t i) {
        const int64_t k = i % (2 * half), j = k % half;
        const double a = x[i / (2 * half) * stride + j], b = x[i / (2 * half) * stride + half + j];
        return k < half ? a * cos[j] - b * sin[j] : b * cos[j] + a * sin[j];
      },
      1e-6);
  Rotate(y.data(), 2 * half, cos.data(), sin.data(), -1.0F, heads, half, back.data());
  ExpectNear(back, [&](int64_t i) { return x[i / (2 * half) * stride + i % (2 * half)]; }, 1e-6);
}

TEST(Fused, SwiGluAndItsGradientAlsoInPlace) {
  const int64_t n = 1000;
  auto gate = Random(n, 10.0), g = Random(n);
  const auto up = Random(n);
  gate[0] = 200, gate[1] = -200, gate[2] = 0;
  std::vector<float> y(n), d_gate(n), d_up(n), again(n);
  SwiGlu(gate.data(), up.data(), n, y.data());
  ExpectNear(y, [&](int64_t i) { return gate[i] * Sigmoid(gate[i]) * up[i]; }, 1e-6);
  SwiGluGrad(g.data(), gate.data(), up.data(), n, d_gate.data(), d_up.data());
  ExpectNear(d_up, [&](int64_t i) { return g[i] * gate[i] * Sigmoid(gate[i]); }, 1e-6);
  ExpectNear(
      d_gate,
      [&](int64_t i) {
        const double s = Sigmoid(gate[i]);
        return 1.0 * g[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
      },
      2e-6);
  SwiGluGrad(g.data(), gate.data(), up.data(), n, g.data(), again.data());
  EXPECT_EQ(g, d_gate);
  EXPECT_EQ(again, d_up);
}

TEST(Fused, CrossEntropyAndItsGradient) {
  const int64_t v = 1300, target = 17;
  const float scale = 0.5F;
  auto logits = Random(v, 4.0);
  logits[3] = 90, logits[4] = -1000;  // far apart: nothing overflows
  double sum = 0;
  for (float x : logits) sum += std::exp(x - 90.0);
  auto row = logits;
  EXPECT_NEAR(CrossEntropy(row.data(), v, target, false, scale), std::log(sum) + 90.0 - logits[target], 1e-5);
  EXPECT_EQ(row, logits);
  EXPECT_NEAR(CrossEntropy(row.data(), v, target, true, scale), std::log(sum) + 90.0 - logits[target], 1e-5);
  ExpectNear(
      row, [&](int64_t k) { return scale * (std::exp(logits[k] - 90.0) / sum - (k == target ? 1.0 : 0.0)); }, 1e-6);
}

TEST(Fused, WhatIsNotFiniteShows) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0, 20, 33}) {
      auto logits = Random(34);
      logits[at] = bad;
      EXPECT_TRUE(std::isnan(CrossEntropy(logits.data(), 34, 1, false, 1.0F))) << bad << " at " << at;
      EXPECT_TRUE(std::isnan(CrossEntropy(logits.data(), 34, 1, true, 1.0F))) << bad << " at " << at;
    }
    float y = 0, one = 1;
    SwiGlu(&bad, &one, 1, &y);
    EXPECT_FALSE(std::isfinite(y));
  }
}

}  // namespace
}  // namespace trainyard::model::fused
