// AdamW whose moments are kept in 8 bits, block by block (eight_bit.h). The weights are updated with the moments as
// they are before they are packed again, so that only what is remembered is rounded. Thread-safety: functions of their
// arguments.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "trainer/optim/adamw.h"

namespace trainyard::optim {

struct AdamW8bitOptions : AdamWOptions {};

// One update in place, as AdamWUpdate. param, grad: float, contiguous, of the same shape of at least two dimensions;
// exp_avg, exp_avg_sq: contiguous uint8 [rows, MomentRowBytes(numbers of a row)], zero before the first update. On the
// CPU the same bits for the same rows, wherever the rows are cut. Empty tensors are fine.
void AdamW8bitUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                     const at::Tensor& exp_avg_sq, const AdamW8bitOptions& options, double lr, double grad_scale,
                     int64_t step);

// The same by ATen operations, for memory that the kernel does not reach. In host memory the moments are the same
// bytes, and weights differ by no more than the rounding of a root, which the library may do otherwise.
void AdamW8bitByOperations(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                           const at::Tensor& exp_avg_sq, const AdamW8bitOptions& options, double lr, double grad_scale,
                           int64_t step);

}  // namespace trainyard::optim
