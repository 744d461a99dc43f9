#include "trainer/model/fused.h"

#include <algorithm>
#include <bit>
#include <cmath>

// One copy for any x86-64 and one with 8-wide vectors, chosen at start; both give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRAINYARD_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_WIDE
#endif
#define TRAINYARD_INLINE [[gnu::always_inline]] inline

namespace trainyard::model::fused {
namespace {

constexpr int kLanes = 16;  // partial sums of a row

// e^x within 2 units in the last place (Cephes, expf: Cody-Waite reduction and a polynomial of degree 5), 2^-126 and
// 2^127 at least and at most; NaN stays NaN.
TRAINYARD_INLINE float Exp(float x) {
  x = x < -87.3F ? -87.3F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: the low bits are round(x / ln 2)
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) + 127U) << 23;
  return p * std::bit_cast<float>(power);
}

TRAINYARD_INLINE float Silu(float x) { return x / (1.0F + Exp(-x)); }

// Sum over i of value(i): lanes first, then pairwise.
template <typename Value>
TRAINYARD_INLINE float Sum(int64_t n, Value value) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lane[k] += value(i + k);
  }
  for (int k = 0; i < n; ++i, ++k) lane[k] += value(i);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

TRAINYARD_INLINE float Float(float x) { return x; }
TRAINYARD_INLINE float Float(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

template <typename T>
TRAINYARD_INLINE void Dots(const T* __restrict matrix, const float* __restrict x, int64_t rows, int64_t n,
                           float* __restrict y) {
  for (int64_t j = 0; j < rows; ++j) {
    const T* const __restrict row = matrix + j * n;
    y[j] = Sum(n, [row, x](int64_t i) { return x[i] * Float(row[i]); });
  }
}

// Four rows at a time, so that the sums are read and written a quarter as often.
template <typename T>
TRAINYARD_INLINE void Columns(const T* __restrict matrix, int64_t stride, const float* __restrict x, int64_t columns,
                              int64_t n, float* __restrict y) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* const __restrict a = matrix + i * stride;
    const T* const __restrict b = a + stride, * const __restrict c = b + stride, * const __restrict d = c + stride;
    const float xa = x[i], xb = x[i + 1], xc = x[i + 2], xd = x[i + 3];
    for (int64_t j = 0; j < columns; ++j) {
      y[j] += (xa * Float(a[j]) + xb * Float(b[j])) + (xc * Float(c[j]) + xd * Float(d[j]));
    }
  }
  for (; i < n; ++i) {
    const T* const __restrict a = matrix + i * stride;
    for (int64_t j = 0; j < columns; ++j) y[j] += x[i] * Float(a[j]);
  }
}

TRAINYARD_INLINE float Max(const float* x, int64_t n) {
  float lane[kLanes];
  std::fill_n(lane, kLanes, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  }
  for (; i < n; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  return *std::max_element(lane, lane + kLanes);
}

template <typename T>
TRAINYARD_INLINE void DropRow(const T* __restrict x, int64_t width, DropKeys keys, uint32_t threshold,
                              T* __restrict y) {
  for (int64_t j = 0; j < width; ++j) {
    uint32_t h = static_cast<uint32_t>(j) * kDropColumn + keys.add;
    h = ((h ^ (h >> 16)) * kDropFirst) ^ keys.mix;
    h = (h ^ (h >> 15)) * kDropSecond;
    h = (h ^ (h >> 16)) >> 8;
    y[j] = h < threshold ? T{0} : x[j];
  }
}

}  // namespace

TRAINYARD_WIDE void RmsReciprocal(const float* x, int64_t n, int64_t h, double eps, float* rstd) {
  for (int64_t i = 0; i < n; ++i) {
    const float* const row = x + i * h;
    const float squares = Sum(h, [row](int64_t k) { return row[k] * row[k]; });
    rstd[i] = 1.0F / std::sqrt(squares / static_cast<float>(h) + static_cast<float>(eps));
  }
}

TRAINYARD_WIDE void RmsApply(const float* __restrict x, const float* __restrict weight, const float* __restrict rstd,
                             int64_t n, int64_t h, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) {
    const float r = rstd[i];
    for (int64_t k = 0; k < h; ++k) y[i * h + k] = x[i * h + k] * r * weight[k];
  }
}

TRAINYARD_WIDE void RmsGrad(const float* __restrict g, const float* __restrict x, const float* __restrict weight,
                            const float* __restrict rstd, int64_t n, int64_t h, float* __restrict gx,
                            float* __restrict gw) {
  for (int64_t i = 0; i < n; ++i) {
    const float* const __restrict gi = g + i * h;
    const float* const __restrict xi = x + i * h;
    float* const __restrict to = gx + i * h;
    const float r = rstd[i];
    const float mean = Sum(h, [=](int64_t k) { return gi[k] * weight[k] * (xi[k] * r); }) / static_cast<float>(h);
    for (int64_t k = 0; k < h; ++k) {
      const float normed = xi[k] * r;
      to[k] = (gi[k] * weight[k] - normed * mean) * r;
      gw[k] += gi[k] * normed;
    }
  }
}

TRAINYARD_WIDE void Rotate(const float* __restrict x, int64_t stride, const float* __restrict cos,
                           const float* __restrict sin, float sign, int64_t heads, int64_t half, float* __restrict y) {
  for (int64_t j = 0; j < heads; ++j) {
    const float* const __restrict from = x + j * stride;
    float* const __restrict to = y + j * 2 * half;
    for (int64_t k = 0; k < half; ++k) {
      const float a = from[k], b = from[half + k], s = sign * sin[k];
      to[k] = a * cos[k] - b * s;
      to[half + k] = b * cos[k] + a * s;
    }
  }
}

TRAINYARD_WIDE void SwiGlu(const float* __restrict gate, const float* __restrict up, int64_t n, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(gate[i]) * up[i];
}

TRAINYARD_WIDE void SwiGluGrad(const float* g, const float* __restrict gate, const float* __restrict up, int64_t n,
                               float* d_gate, float* __restrict d_up) {
  // In pieces through a place of its own, since d_gate may be g: the compiler then sees nothing that overlaps.
  constexpr int64_t kPiece = 256;
  float grad[kPiece];
  for (int64_t start = 0; start < n; start += kPiece) {
    const int64_t count = std::min(kPiece, n - start);
    std::copy_n(g + start, count, grad);
    float* const __restrict to = d_gate + start;
    for (int64_t i = 0; i < count; ++i) {
      const float x = gate[start + i], sigmoid = 1.0F / (1.0F + Exp(-x));
      d_up[start + i] = grad[i] * (x * sigmoid);
      to[i] = grad[i] * up[start + i] * sigmoid * (1.0F + x * (1.0F - sigmoid));
    }
  }
}

TRAINYARD_WIDE void RowDots(const float* matrix, const float* x, int64_t rows, int64_t n, float* y) {
  Dots(matrix, x, rows, n, y);
}
TRAINYARD_WIDE void RowDotsBf16(const uint16_t* matrix, const float* x, int64_t rows, int64_t n, float* y) {
  Dots(matrix, x, rows, n, y);
}
TRAINYARD_WIDE void ColumnSums(const float* matrix, int64_t stride, const float* x, int64_t columns, int64_t n,
                               float* y) {
  Columns(matrix, stride, x, columns, n, y);
}
TRAINYARD_WIDE void ColumnSumsBf16(const uint16_t* matrix, int64_t stride, const float* x, int64_t columns, int64_t n,
                                   float* y) {
  Columns(matrix, stride, x, columns, n, y);
}

TRAINYARD_WIDE double CrossEntropy(float* logits, int64_t v, int64_t target, bool gradient, float scale) {
  const float max = Max(logits, v), wanted = logits[target];
  // Sums of a few hundred in float, these in double: a vocabulary has 10^5 classes.
  constexpr int64_t kBlock = 512;
  double sum = 0;
  for (int64_t start = 0; start < v; start += kBlock) {
    float* const at = logits + start;
    const int64_t n = std::min(kBlock, v - start);
    if (gradient) {
      for (int64_t k = 0; k < n; ++k) at[k] = Exp(at[k] - max);
      sum += Sum(n, [at](int64_t k) { return at[k]; });
    } else {
      sum += Sum(n, [at, max](int64_t k) { return Exp(at[k] - max); });
    }
  }
  if (gradient) {
    const float factor = static_cast<float>(scale / sum);
    for (int64_t k = 0; k < v; ++k) logits[k] *= factor;
    logits[target] -= scale;
  }
  return std::log(sum) + static_cast<double>(max) - static_cast<double>(wanted);
}

TRAINYARD_WIDE void Drop(const uint16_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint16_t* y) {
  DropRow(x, width, keys, threshold, y);
}
TRAINYARD_WIDE void Drop(const uint32_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint32_t* y) {
  DropRow(x, width, keys, threshold, y);
}
TRAINYARD_WIDE void Drop(const uint64_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint64_t* y) {
  DropRow(x, width, keys, threshold, y);
}

}  // namespace trainyard::model::fused
