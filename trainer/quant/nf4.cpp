#include "trainer/quant/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

// One copy for any x86-64 and one with 8-wide vectors, chosen at start. Neither has fused multiply-add, so both give
// the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRAINYARD_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_WIDE
#endif

namespace trainyard::quant {
namespace {

constexpr int64_t kChunk = 8 * kNf4Block;  // numbers that are unpacked before they are scaled

// Both numbers of a byte of codes.
constexpr std::array<std::array<float, 2>, 256> kPairs = [] {
  std::array<std::array<float, 2>, 256> pairs{};
  for (size_t byte = 0; byte < 256; ++byte) pairs[byte] = {kNf4Code[byte & 15], kNf4Code[byte >> 4]};
  return pairs;
}();

// Above so many of these, rounded to float, is the code of a number.
constexpr std::array<float, 15> kMidpoints = [] {
  std::array<float, 15> midpoints{};
  for (size_t i = 0; i < 15; ++i)
    midpoints[i] = static_cast<float>((double{kNf4Code[i]} + double{kNf4Code[i + 1]}) / 2);
  return midpoints;
}();

inline float Widen(float x) { return x; }
inline float Widen(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

inline void Store(float x, float* to) { *to = x; }
// Rounds to the nearest bfloat16, ties to even. Numbers here are finite.
inline void Store(float x, uint16_t* to) {
  const auto bits = std::bit_cast<uint32_t>(x);
  *to = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What the scales of a row are read by, at its end.
struct Scales {
  float offset = 0, step = 0;
  float Of(uint8_t q) const { return offset + step * static_cast<float>(q); }
};

Scales ScalesOf(const uint8_t* row, int64_t n) {
  Scales scales;
  std::memcpy(&scales, row + Nf4RowBytes(n) - sizeof(Scales), sizeof(Scales));
  return scales;
}

// Bits of the largest absolute value: as integers they are in the order of the values, with what is not finite above.
template <typename T>
[[gnu::always_inline]] inline uint32_t LargestBits(const T* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(Widen(x[i])) & 0x7fffffff);
  return largest;
}

template <typename T>
[[gnu::always_inline]] inline void Encode(const T* x, int64_t n, float scale, uint8_t* codes) {
  uint8_t code[kNf4Block] = {};  // an odd number of them: 0 beside the last
  for (int64_t i = 0; i < n; ++i) {
    const float value = scale > 0 ? Widen(x[i]) / scale : 0.0F;
    int above = 0;
    for (const float midpoint : kMidpoints) above += value > midpoint ? 1 : 0;
    code[i] = static_cast<uint8_t>(above);
  }
  for (int64_t i = 0; i < (n + 1) / 2; ++i) codes[i] = static_cast<uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
}

template <typename T>
[[gnu::always_inline]] inline bool Quantise(const T* x, int64_t n, uint8_t* row) {
  uint32_t smallest = 0x7fffffff, largest = 0;  // bits of the scales
  const int64_t blocks = Nf4Blocks(n);
  for (int64_t b = 0; b < blocks; ++b) {
    const uint32_t bits = LargestBits(x + b * kNf4Block, std::min(kNf4Block, n - b * kNf4Block));
    smallest = std::min(smallest, bits);
    largest = std::max(largest, bits);
  }
  if (largest >= 0x7f800000) return false;
  Scales scales{.offset = std::bit_cast<float>(smallest)};
  scales.step = (std::bit_cast<float>(largest) - scales.offset) / 255.0F;
  uint8_t* const quantised = row + (n + 1) / 2;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * kNf4Block, count = std::min(kNf4Block, n - first);
    const auto scale = std::bit_cast<float>(LargestBits(x + first, count));
    const float q = scales.step > 0 ? std::nearbyint((scale - scales.offset) / scales.step) : 0.0F;
    quantised[b] = static_cast<uint8_t>(std::min(q, 255.0F));
    Encode(x + first, count, scales.Of(quantised[b]), row + first / 2);
  }
  std::memcpy(row + Nf4RowBytes(n) - sizeof(Scales), &scales, sizeof(Scales));
  return true;
}

template <typename T>
[[gnu::always_inline]] inline void Dequantise(const uint8_t* row, int64_t n, T* x) {
  const Scales scales = ScalesOf(row, n);
  const uint8_t* const quantised = row + (n + 1) / 2;
  float values[kChunk];
  for (int64_t lo = 0; lo < n; lo += kChunk) {
    const int64_t count = std::min(kChunk, n - lo);
    const uint8_t* const codes = row + lo / 2;
    for (int64_t i = 0; i < (count + 1) / 2; ++i) std::memcpy(values + 2 * i, &kPairs[codes[i]], 2 * sizeof(float));
    for (int64_t first = 0; first < count; first += kNf4Block) {
      const float scale = scales.Of(quantised[(lo + first) / kNf4Block]);
      const int64_t end = std::min(kNf4Block, count - first);
      for (int64_t i = 0; i < end; ++i) Store(values[first + i] * scale, x + lo + first + i);
    }
  }
}

static_assert(std::endian::native == std::endian::little, "rows hold their floats as they are in memory");

}  // namespace

TRAINYARD_WIDE bool Nf4QuantiseRow(const float* x, int64_t n, uint8_t* row) { return Quantise(x, n, row); }
TRAINYARD_WIDE bool Nf4QuantiseRow(const uint16_t* x, int64_t n, uint8_t* row) { return Quantise(x, n, row); }
TRAINYARD_WIDE void Nf4DequantiseRow(const uint8_t* row, int64_t n, float* x) { Dequantise(row, n, x); }
TRAINYARD_WIDE void Nf4DequantiseRow(const uint8_t* row, int64_t n, uint16_t* x) { Dequantise(row, n, x); }

}  // namespace trainyard::quant
