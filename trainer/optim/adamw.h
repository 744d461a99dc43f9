// AdamW with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2,
// with the epsilon outside the bias-corrected root as PyTorch has it) and the global-norm clip. The CPU kernel is our
// own and purely element-wise without fused multiply-add, so that the result does not depend on where a shard is cut.
// Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace trainyard::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

// One update in place. param, exp_avg, exp_avg_sq: contiguous, same dtype (float or double) and number of elements;
// grad too. The gradient used is grad_scale * grad; grad itself is not changed. step counts from 1.
//   p *= 1 - lr*wd;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g*g;
//   p -= lr/(1-b1^step) * m / (sqrt(v)/sqrt(1-b2^step) + eps)
// Tensors off the CPU go through at::_fused_adamw_. Empty tensors are fine.
void AdamWUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const AdamWOptions& options, double lr, double grad_scale, int64_t step);

// Sum of squares in fp64 of a contiguous float or double tensor; the same bits for the same values.
double SumSquares(const at::Tensor& x);

// Factor for gradients of global L2 norm `norm` so that it is at most max_norm: min(1, max_norm / (norm + 1e-6)).
// max_norm <= 0 means no clipping: 1.
// A norm that is not finite gives 1 or 0: callers check for it first.
double ClipFactor(double norm, double max_norm);

}  // namespace trainyard::optim
