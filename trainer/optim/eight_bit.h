// Moments in 8 bits (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022): a number is one of 256
// values of the dynamic tree map of the paper's section 1.3 (the form of bitsandbytes, create_dynamic_map with 7 bits
// of exponent) times the scale of its block of 256, the largest absolute value in there.
//
// Decade i = 0..6 of the map is [10^(i-7), 10^(i-6)] in F equal cells, whose centres are its values: F = 2^i with a
// sign, for the first moment, and 2^(i+1) without, for the second. 0 and 1 are values besides; -1 is none.
//
// A row of n numbers is packed by itself, so that a shard of rows is the same bytes at every world size: n codes, their
// values in ascending order, then ceil(n / 256) floats, the scales; the last block may be shorter. Bytes that are all
// zero stand for zeros.
//
// Compiled without fused multiply-add, as kernels.h. No LibTorch here. Thread-safety: functions of their arguments.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/contract/packed.h"
#include "trainer/optim/kernels.h"

namespace trainyard::optim {

using contract::kMomentBlock;
using contract::MomentRowBytes;

// The maps, ascending: of the first moment and of the second.
const std::array<float, 256>& SignedMap();
const std::array<float, 256>& UnsignedMap();

// Nearest codes of x in [-1, 1] and in [0, 1]; halfway between two the one nearer to zero. The second moment is what an
// update divides by the root of: above zero it never gets the code of zero.
uint8_t SignedCode(float x);
uint8_t UnsignedCode(float x);

// One update of a row of `n` numbers with moments of MomentRowBytes(n) bytes each: what AdamWKernel computes, on
// moments that are unpacked before and packed after.
void AdamW8bitRow(float* p, const float* g, uint8_t* m, uint8_t* v, int64_t n, const AdamWFactors& f);

// A packed row as numbers.
void UnpackMoments(const std::array<float, 256>& map, const uint8_t* row, int64_t n, float* out);

}  // namespace trainyard::optim
