// AdamW with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2,
// with the epsilon outside the bias-corrected root as PyTorch has it). Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace trainyard::optim {

struct AdamWFactors;

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
// On the CPU the kernel is our own, purely element-wise and without fused multiply-add: the result is the same bits
// wherever the tensors are cut. Tensors elsewhere go through at::_fused_adamw_. Empty tensors are fine.
void AdamWUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const AdamWOptions& options, double lr, double grad_scale, int64_t step);

// The constants of one update, for the kernels.
AdamWFactors FactorsOf(const AdamWOptions& options, double lr, double grad_scale, int64_t step);

}  // namespace trainyard::optim
