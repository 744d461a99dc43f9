// Stochastic gradient descent with momentum (Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
// and momentum in deep learning", 2013) in the form of torch.optim.SGD without dampening: the learning rate is outside
// of the buffer, weight decay is L2. Thread-safety: functions of their arguments.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::optim {

struct SgdOptions {
  double momentum = 0;  // 0: none, and no buffer
  bool nesterov = false;
  double weight_decay = 0;
};

// One update in place. param, grad: contiguous, same dtype (float or double) and number of elements; with momentum
// `buffer` too, zero before the first update; without it undefined. The gradient used is grad_scale * grad; grad itself
// is not changed.
//   g = grad + wd*p;  with momentum: b = mu*b + g, and g = g + mu*b (Nesterov) or b (else);  p -= lr*g
// On the CPU the same bits wherever the tensors are cut, as AdamWUpdate. Tensors elsewhere go through at::_fused_sgd_.
void SgdUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& buffer, const SgdOptions& options,
               double lr, double grad_scale);

}  // namespace trainyard::optim
