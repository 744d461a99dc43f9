// Gradients as fixed-point numbers, whose sums have the same bits in any order and any grouping: over micro-batches,
// over ranks, at every world size. A gradient g of a parameter with shift s becomes the integer nearest to g * 2^s
// (ties to even); integers are added in 64 bits; the sum is read back as sum * 2^-s.
//
// A shift is one number per parameter. It follows the largest gradient of the step before, with room for growth, so it
// is a function of values that every world size agrees on. A step whose gradients need more room than there is, or
// leave so much of it unused that precision is lost, is told by Judge and has to be run again with ShiftFor of what was
// seen.
//
// No LibTorch here. Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

namespace trainyard::engine {

// Bits of one addend, sign aside, so that `addends` of them never overflow a sum: at most 50, up to which the rounding
// in double is exact, and 62 in all. Throws std::invalid_argument for addends < 1 or more than 2^20.
int AddendBits(int64_t addends);

// How large the largest of some gradients is: all |g| < 2^e, and not all are below half of that.
constexpr int kAllZero = -1000;
constexpr int kNotFinite = 1000;  // one of them is infinite or not a number

// e of the largest absolute value, given as the bits of a float without its sign.
int MagnitudeOf(uint32_t largest_bits);

// The shift before anything has been seen: gradients whose largest is between 2^-19 and 2^6 fit (with up to
// 4096 addends).
int FirstShift(int addend_bits);
// The shift for gradients like those seen, with room to grow by 2^8. `magnitude` is neither kAllZero nor kNotFinite.
int ShiftFor(int magnitude, int addend_bits);

enum class Fit {
  kFits,
  kOutgrown,   // an addend has more than its bits: sums may be wrong
  kTooCoarse,  // the largest addend has fewer than 26 bits
};
// Zeros fit, and so does what is not finite: no shift would help.
Fit Judge(int magnitude, int shift, int addend_bits);

// sums[i] = (or, with `add`, +=) the integer nearest to x[i] * 2^shift. Returns the bits of the largest |x[i]|, where
// infinity and NaN are above all numbers. Addends that do not fit leave some integer: Judge tells. Sums wrap.
uint32_t Quantise(const float* x, int64_t n, int shift, bool add, int64_t* sums);
// The same for bfloat16, given as its bits; what is returned are bits of a float here too.
uint32_t Quantise(const uint16_t* x, int64_t n, int shift, bool add, int64_t* sums);

// out[i] = sums[i] * 2^-shift, rounded to float.
void Dequantise(const int64_t* sums, int64_t n, int shift, float* out);

}  // namespace trainyard::engine
