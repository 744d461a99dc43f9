#include "trainer/engine/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

// One copy for any x86-64 and one with 8-wide vectors, chosen at start. Every operation is exact or rounded once, so
// both give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRAINYARD_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_WIDE
#endif

namespace trainyard::engine {
namespace {

constexpr int kWidestAddend = 50, kSumBits = 62, kRoomBits = 8, kLeastBits = 26;
constexpr int64_t kMostAddends = int64_t{1} << 20;
constexpr uint32_t kInfinity = 0x7f800000;

[[gnu::always_inline]] inline float Value(float x) { return x; }
[[gnu::always_inline]] inline float Value(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// Adding 1.5 * 2^52 rounds a double below 2^51 to an integer and leaves that integer in the low bits. The product is
// exact: a float times a power of two within the range of double.
template <bool kAdd, typename T>
[[gnu::always_inline]] inline uint32_t Run(const T* __restrict x, int64_t n, double scale, int64_t* __restrict sums) {
  constexpr double kMagic = 0x1.8p52;
  constexpr auto kMagicBits = std::bit_cast<uint64_t>(kMagic);
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float value = Value(x[i]);
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffU);
    const uint64_t whole = std::bit_cast<uint64_t>(static_cast<double>(value) * scale + kMagic) - kMagicBits;
    sums[i] = static_cast<int64_t>(kAdd ? static_cast<uint64_t>(sums[i]) + whole : whole);
  }
  return largest;
}

template <typename T>
[[gnu::always_inline]] inline uint32_t Run(const T* x, int64_t n, int shift, bool add, int64_t* sums) {
  const double scale = std::ldexp(1.0, shift);
  return add ? Run<true>(x, n, scale, sums) : Run<false>(x, n, scale, sums);
}

}  // namespace

int AddendBits(int64_t addends) {
  if (addends < 1 || addends > kMostAddends) {
    throw std::invalid_argument("exact sums are of 1 to " + std::to_string(kMostAddends) + " micro-batches, not of " +
                                std::to_string(addends));
  }
  return std::min(kWidestAddend, kSumBits - static_cast<int>(std::bit_width(static_cast<uint64_t>(addends - 1))));
}

int MagnitudeOf(uint32_t bits) {
  if (bits == 0) return kAllZero;
  if (bits >= kInfinity) return kNotFinite;
  const int exponent = static_cast<int>(bits >> 23);
  return exponent > 0 ? exponent - 126 : static_cast<int>(std::bit_width(bits)) - 149;
}

int FirstShift(int addend_bits) { return ShiftFor(-2, addend_bits); }

int ShiftFor(int magnitude, int addend_bits) { return addend_bits - kRoomBits - magnitude; }

Fit Judge(int magnitude, int shift, int addend_bits) {
  if (magnitude == kAllZero || magnitude == kNotFinite) return Fit::kFits;
  if (magnitude + shift > addend_bits) return Fit::kOutgrown;
  return magnitude + shift < kLeastBits ? Fit::kTooCoarse : Fit::kFits;
}

TRAINYARD_WIDE uint32_t Quantise(const float* x, int64_t n, int shift, bool add, int64_t* sums) {
  return Run(x, n, shift, add, sums);
}

TRAINYARD_WIDE uint32_t Quantise(const uint16_t* x, int64_t n, int shift, bool add, int64_t* sums) {
  return Run(x, n, shift, add, sums);
}

TRAINYARD_WIDE void Dequantise(const int64_t* sums, int64_t n, int shift, float* out) {
  const double scale = std::ldexp(1.0, -shift);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<double>(sums[i]) * scale);
}

}  // namespace trainyard::engine
