#include "trainer/optim/eight_bit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "trainer/optim/adamw_elements.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRAINYARD_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_WIDE
#endif

namespace trainyard::optim {
namespace {

constexpr int kDecades = 7;
constexpr uint8_t kSignedZero = 127;  // code of 0 in the signed map: as many values are below it

// Bits of a float cut to its exponent and 7 of the mantissa; buckets begin where every map is still nearest to zero.
constexpr uint32_t BucketOf(float x) { return std::bit_cast<uint32_t>(x) >> 16; }
constexpr uint32_t kFirstBucket = BucketOf(0x1p-23F), kBuckets = BucketOf(1.0F) - kFirstBucket + 1;

// The values of a map that are not negative, ascending, and how to find the nearest one: a number's bucket tells the
// first value that may be it, and no bucket has more than one midpoint in it.
template <size_t kValues>
struct Levels {
  std::array<float, kValues> value{};
  std::array<float, kValues> above{};  // the midpoint to the next one
  std::array<uint8_t, kBuckets> first{};

  // `cells`: of the lowest decade.
  constexpr explicit Levels(int cells) {
    size_t n = 1;  // after zero
    double decade = 1e-6;
    for (int i = 0; i < kDecades; ++i, decade *= 10, cells *= 2) {
      for (int j = 0; j < cells; ++j) value[n++] = static_cast<float>(decade * (0.1 + 0.9 * (j + 0.5) / cells));
    }
    value[n++] = 1.0F;
    for (size_t i = 0; i + 1 < n; ++i) {
      above[i] = static_cast<float>((static_cast<double>(value[i]) + static_cast<double>(value[i + 1])) / 2);
    }
    above[n - 1] = std::numeric_limits<float>::infinity();
    size_t level = 0;
    for (uint32_t b = 0; b < kBuckets; ++b) {
      const float lowest = std::bit_cast<float>((kFirstBucket + b) << 16);
      while (lowest > above[level]) ++level;
      first[b] = static_cast<uint8_t>(level);
    }
  }
  constexpr bool OneMidpointPerBucket() const {
    for (uint32_t b = 0; b + 1 < kBuckets; ++b) {
      if (first[b + 1] > first[b] + 1) return false;
    }
    return above[0] > std::bit_cast<float>((kFirstBucket + 1) << 16);  // the first one stands for all that is smaller
  }
  // x >= 0; what is above 1 or not a number gets some level.
  [[gnu::always_inline]] uint32_t Nearest(float x) const {
    const uint32_t bucket = std::clamp(BucketOf(x), kFirstBucket, kFirstBucket + kBuckets - 1) - kFirstBucket;
    const uint32_t level = first[bucket];
    return level + static_cast<uint32_t>(x > above[level]);
  }
};

constexpr Levels<129> kSigned(1);
constexpr Levels<256> kUnsigned(2);
static_assert(kSigned.OneMidpointPerBucket() && kUnsigned.OneMidpointPerBucket());

constexpr std::array<float, 256> kSignedMap = [] {
  std::array<float, 256> map{};
  for (size_t i = 0; i < 256; ++i)
    map[i] = i < kSignedZero ? -kSigned.value[kSignedZero - i] : kSigned.value[i - kSignedZero];
  return map;
}();

// Bits of the largest absolute value: as integers they are in the order of the values.
[[gnu::always_inline]] inline float Largest(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

inline float ScaleOf(const uint8_t* row, int64_t n, int64_t block) {
  float scale;
  std::memcpy(&scale, row + n + block * static_cast<int64_t>(sizeof(float)), sizeof(float));
  return scale;
}
inline void SetScale(uint8_t* row, int64_t n, int64_t block, float scale) {
  std::memcpy(row + n + block * static_cast<int64_t>(sizeof(float)), &scale, sizeof(float));
}

// The codes of `n` numbers whose largest is `scale`, in steps that vectors can take, but for the look-up between them.
[[gnu::always_inline]] inline void EncodeSigned(const float* x, int64_t n, float scale, uint8_t* codes) {
  int32_t levels[kMomentBlock];
  const float divisor = scale > 0 ? scale : 1.0F;
  float size[kMomentBlock];
  for (int64_t i = 0; i < n; ++i) size[i] = std::abs(x[i]) / divisor;
  for (int64_t i = 0; i < n; ++i) levels[i] = static_cast<int32_t>(kSigned.Nearest(size[i]));
  for (int64_t i = 0; i < n; ++i) {
    const int32_t below = -std::min<int32_t>(levels[i], kSignedZero);
    codes[i] = static_cast<uint8_t>(kSignedZero + (x[i] < 0 ? below : levels[i]));
  }
}

[[gnu::always_inline]] inline void EncodeUnsigned(const float* x, int64_t n, float scale, uint8_t* codes) {
  int32_t levels[kMomentBlock];
  const float divisor = scale > 0 ? scale : 1.0F;
  float size[kMomentBlock];
  for (int64_t i = 0; i < n; ++i) size[i] = x[i] / divisor;
  for (int64_t i = 0; i < n; ++i) levels[i] = static_cast<int32_t>(kUnsigned.Nearest(size[i]));
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(std::max<int32_t>(levels[i], x[i] > 0 ? 1 : 0));
}

[[gnu::always_inline]] inline void UpdateRow(float* p, const float* g, uint8_t* m, uint8_t* v, int64_t n,
                                             const AdamWFactors& f) {
  float first[kMomentBlock], second[kMomentBlock];
  for (int64_t lo = 0, block = 0; lo < n; lo += kMomentBlock, ++block) {
    const int64_t count = std::min(kMomentBlock, n - lo);
    const float old_first = ScaleOf(m, n, block), old_second = ScaleOf(v, n, block);
    for (int64_t i = 0; i < count; ++i) first[i] = kSignedMap[m[lo + i]] * old_first;
    for (int64_t i = 0; i < count; ++i) second[i] = kUnsigned.value[v[lo + i]] * old_second;
    UpdateElements(p + lo, g + lo, first, second, count, f);
    const float first_scale = Largest(first, count), second_scale = Largest(second, count);
    SetScale(m, n, block, first_scale);
    SetScale(v, n, block, second_scale);
    EncodeSigned(first, count, first_scale, m + lo);
    EncodeUnsigned(second, count, second_scale, v + lo);
  }
}

}  // namespace

const std::array<float, 256>& SignedMap() { return kSignedMap; }
const std::array<float, 256>& UnsignedMap() { return kUnsigned.value; }

uint8_t SignedCode(float x) {
  uint8_t code = 0;
  EncodeSigned(&x, 1, 1.0F, &code);
  return code;
}

uint8_t UnsignedCode(float x) {
  uint8_t code = 0;
  EncodeUnsigned(&x, 1, 1.0F, &code);
  return code;
}

TRAINYARD_WIDE void AdamW8bitRow(float* p, const float* g, uint8_t* m, uint8_t* v, int64_t n, const AdamWFactors& f) {
  UpdateRow(p, g, m, v, n, f);
}

void UnpackMoments(const std::array<float, 256>& map, const uint8_t* row, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = map[row[i]] * ScaleOf(row, n, i / kMomentBlock);
}

}  // namespace trainyard::optim
