#include "trainer/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::model {
namespace {

using checkpoint::RopeScaling;
using checkpoint::RopeType;

// One frequency of Llama 3: waves shorter than the upper limit stay, longer ones than the lower are divided.
double Llama3(double frequency, const RopeScaling& s) {
  const double length = static_cast<double>(s.original_max_positions);
  const double wave = 2 * std::numbers::pi / frequency;
  if (wave < length / s.high_freq_factor) return frequency;
  if (wave > length / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (length / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

// The pair that turns `rotations` times within the length of pretraining.
double YarnPair(double rotations, double theta, int64_t dim, int64_t length) {
  return static_cast<double>(dim) * std::log(static_cast<double>(length) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

void Yarn(std::vector<double>& frequencies, double theta, int64_t dim, const RopeScaling& s) {
  double low = YarnPair(s.beta_fast, theta, dim, s.original_max_positions);
  double high = YarnPair(s.beta_slow, theta, dim, s.original_max_positions);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;  // no division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * divided + frequencies[i] * (1 - divided);
  }
}

}  // namespace

std::vector<double> RopeFrequencies(double theta, int64_t dim, const RopeScaling& scaling) {
  const int64_t half = dim / 2;
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    frequencies[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  }
  switch (scaling.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      for (double& f : frequencies) f /= scaling.factor;
      break;
    case RopeType::kLlama3:
      for (double& f : frequencies) f = Llama3(f, scaling);
      break;
    case RopeType::kYarn:
      Yarn(frequencies, theta, dim, scaling);
      break;
  }
  return frequencies;
}

RopeTable MakeRopeTable(double theta, int64_t dim, const RopeScaling& scaling, int64_t positions,
                        const at::Tensor& like) {
  const std::vector<double> frequencies = RopeFrequencies(theta, dim, scaling);
  const auto half = static_cast<int64_t>(frequencies.size());
  at::Tensor angle = at::empty({positions, 1, half}, at::kDouble);
  double* a = angle.mutable_data_ptr<double>();
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t t = 0; t < positions; ++t) a[t * half + i] = static_cast<double>(t) * frequencies[i];
  }
  at::Tensor cos = angle.cos(), sin = angle.sin();
  if (scaling.attention_factor != 1) cos.mul_(scaling.attention_factor), sin.mul_(scaling.attention_factor);
  return {cos.to(like.options()), sin.to(like.options())};
}

}  // namespace trainyard::model
