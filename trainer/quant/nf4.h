// NF4: weights in 4 bits with double quantisation (Dettmers et al., "QLoRA", 2023, sections 2 and 3, appendix E), on
// plain memory. A number is a code, the nearest of 16 values of [-1, 1] that hold equally many numbers of a normal
// distribution, times the scale of its block of 64, the largest absolute value in there. Scales are quantised too:
// evenly, in 8 bits, between the smallest and the largest of the row.
//
// A row of n numbers is packed by itself, so that a shard of rows is the same bytes at every world size:
//   ceil(n / 2) bytes        codes: the number of even index in the low 4 bits (odd n: the last high ones are 0)
//   ceil(n / 64) bytes       q, one per block, the last of which may be shorter
//   float offset, float step little-endian: the scale of block i is offset + step * q_i
//
// Arithmetic is in float, without fused multiply-add, and quantising and dequantising give the same bits everywhere.
// No LibTorch here: see nf4_tensor.h. Thread-safety: functions of their arguments.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/contract/packed.h"

namespace trainyard::quant {

using contract::kNf4Block;
using contract::Nf4Blocks;
using contract::Nf4RowBytes;

// The published code book: appendix E of the paper, bit by bit.
inline constexpr std::array<float, 16> kNf4Code = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

// Packs a row of `n` >= 1 numbers (the second form: bfloat16, given as its bits) into Nf4RowBytes(n) bytes. The code of
// x is that of x / scale, with the scale as it will be read back; halfway between two codes the lower one is taken.
// False when a number is not finite; then what was written means nothing.
[[nodiscard]] bool Nf4QuantiseRow(const float* x, int64_t n, uint8_t* row);
[[nodiscard]] bool Nf4QuantiseRow(const uint16_t* x, int64_t n, uint8_t* row);

// Unpacks a row of `n` >= 1 numbers: code * scale, rounded once; into bfloat16 (its bits) rounded again, to even.
void Nf4DequantiseRow(const uint8_t* row, int64_t n, float* x);
void Nf4DequantiseRow(const uint8_t* row, int64_t n, uint16_t* x);

}  // namespace trainyard::quant
