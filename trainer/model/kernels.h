// Values and gradients of a transformer's elementwise pieces as plain tensor arithmetic, without autograd: what the
// functions of ops.h and selective.h are made of. Running a forward formula again gives the same bits.
// Thread-safety: functions of their arguments.
#pragma once

#include <utility>

#include <ATen/ATen.h>

namespace trainyard::model {

// float, or double for double: the type of statistics and sums.
at::ScalarType AtLeastFloat(const at::Tensor& x);

// 1 / sqrt(mean(x^2, last) + eps), [n, 1] in fp32 at least. x: [n, h].
at::Tensor RmsReciprocal(const at::Tensor& x, double eps);
// x * rstd * weight in x's type.
at::Tensor RmsApply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd);
// Gradients of x and of weight from that of RmsApply.
std::pair<at::Tensor, at::Tensor> RmsGrad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& rstd);

// y1 = x1*cos - sign*x2*sin, y2 = x2*cos + sign*x1*sin on the halves of the last dimension; contiguous. sign -1 turns
// back, which is also the gradient. x: [b, s, heads, d]; cos, sin: [s, 1, d/2] or [b, s, 1, d/2].
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, double sign);

// silu(gate) * up.
at::Tensor SwiGluApply(const at::Tensor& gate, const at::Tensor& up);
// Gradients of gate and of up. The second form writes the gate's into `grad`.
std::pair<at::Tensor, at::Tensor> SwiGluGrad(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up);
std::pair<at::Tensor, at::Tensor> SwiGluGradInto(at::Tensor grad, const at::Tensor& gate, const at::Tensor& up);

}  // namespace trainyard::model
