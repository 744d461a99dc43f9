// The global L2 norm of the gradient and what it clips (Pascanu, Mikolov and Bengio, "On the difficulty of training
// recurrent neural networks", 2013, algorithm 1). Thread-safety: functions of their arguments.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::optim {

// Sum of squares in fp64 of a contiguous float or double tensor; the same bits for the same values, whatever the number
// of threads.
double SumSquares(const at::Tensor& x);

// Factor for gradients of global L2 norm `norm` so that it is at most max_norm: min(1, max_norm / (norm + 1e-6)), as
// torch.nn.utils.clip_grad_norm_. max_norm <= 0 means no clipping: 1.
// A norm that is not finite gives 1 or 0: callers check for it first.
double ClipFactor(double norm, double max_norm);

}  // namespace trainyard::optim
