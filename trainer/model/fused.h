// The elementwise pieces of a transformer on plain float memory, each in one pass, for the CPU: what ATen does as three
// to eight operations, each through memory. Compiled without fused multiply-add and with a fixed number of partial
// sums, so that a row gives the same bits whatever the processor and however rows are divided among threads. NaN and
// infinity come out as NaN or infinity. Thread-safety: functions of their arguments; output ranges must not overlap
// inputs unless said.
#pragma once

#include <cstdint>

namespace trainyard::model::fused {

// n rows of h elements.

// rstd[i] = 1 / sqrt(mean(x[i]^2) + eps).
void RmsReciprocal(const float* x, int64_t n, int64_t h, double eps, float* rstd);
// y = x * rstd * weight.
void RmsApply(const float* x, const float* weight, const float* rstd, int64_t n, int64_t h, float* y);
// gx = rstd * (g w - x rstd mean(g w x rstd)); gw [h] += the sum over the rows of g x rstd, added in row order.
void RmsGrad(const float* g, const float* x, const float* weight, const float* rstd, int64_t n, int64_t h, float* gx,
             float* gw);

// Rotates `heads` vectors of 2*half elements, `stride` apart at x and one after another at y, by one position's angles:
// y1 = x1 cos - sign x2 sin, y2 = x2 cos + sign x1 sin.
void Rotate(const float* x, int64_t stride, const float* cos, const float* sin, float sign, int64_t heads, int64_t half,
            float* y);

// y = silu(gate) * up.
void SwiGlu(const float* gate, const float* up, int64_t n, float* y);
// d_gate = g up silu'(gate), d_up = g silu(gate); d_gate may be g.
void SwiGluGrad(const float* g, const float* gate, const float* up, int64_t n, float* d_gate, float* d_up);

// Cross-entropy in nats of a row of v logits with target class `target`. With `gradient`, the row becomes
// scale * (softmax - one-hot).
double CrossEntropy(float* logits, int64_t v, int64_t target, bool gradient, float scale);

// One row times a matrix. BF16 comes as its bits.
// y[j] = the sum over i < n of x[i] matrix[j * n + i], for `rows` rows of the matrix.
void RowDots(const float* matrix, const float* x, int64_t rows, int64_t n, float* y);
void RowDotsBf16(const uint16_t* matrix, const float* x, int64_t rows, int64_t n, float* y);
// y[j] += the sum over i < n of x[i] matrix[i * stride + j], for `columns` columns.
void ColumnSums(const float* matrix, int64_t stride, const float* x, int64_t columns, int64_t n, float* y);
void ColumnSumsBf16(const uint16_t* matrix, int64_t stride, const float* x, int64_t columns, int64_t n, float* y);
// y = x, with zero in the columns of a row whose hash is below `threshold` of 2^24. The hash of column j mixes j with
// both keys of the row by xor, shifts and odd multipliers (constants of Wellons' "lowbias32").
struct DropKeys {
  uint32_t add = 0, mix = 0;
};
inline constexpr uint32_t kDropColumn = 0x9E3779B9U, kDropFirst = 0x7FEB352DU, kDropSecond = 0x846CA68BU;
void Drop(const uint16_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint16_t* y);
void Drop(const uint32_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint32_t* y);
void Drop(const uint64_t* x, int64_t width, DropKeys keys, uint32_t threshold, uint64_t* y);

}  // namespace trainyard::model::fused
