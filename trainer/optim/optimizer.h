// The optimizers behind one face: what each keeps per parameter, and its update. Thread-safety: functions of their
// arguments.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/optim/adamw.h"
#include "trainer/optim/sgd.h"

namespace trainyard::optim {

using Options = std::variant<AdamWOptions, SgdOptions>;

// The tensors that an optimizer keeps of each parameter, of its shape and in the master type, zero at first. The names
// are those of PyTorch's optimizers and, in this order, everywhere: {"exp_avg", "exp_avg_sq"}, {"momentum_buffer"}, {}.
std::vector<const char*> StateNames(const Options& options);

// The same without weight decay: for norms and biases.
Options WithoutDecay(Options options);

// One update in place of `param` and of `state`, which has a tensor per name. See AdamWUpdate and SgdUpdate.
void Update(const Options& options, const at::Tensor& param, const at::Tensor& grad, std::span<const at::Tensor> state,
            double lr, double grad_scale, int64_t step);

}  // namespace trainyard::optim
