#include "trainer/model/kernels.h"

namespace trainyard::model {

at::ScalarType AtLeastFloat(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor RmsReciprocal(const at::Tensor& x, double eps) {
  return x.to(AtLeastFloat(x)).square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

at::Tensor RmsApply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  return (x.to(rstd.scalar_type()) * rstd).to(x.scalar_type()).mul_(weight);
}

std::pair<at::Tensor, at::Tensor> RmsGrad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& rstd) {
  const at::ScalarType type = rstd.scalar_type();
  const at::Tensor g = grad.to(type);
  const at::Tensor normed = x.to(type) * rstd;
  const at::Tensor gw = (g * normed).sum(0);
  // d/dx of x*rstd: rstd * (gy - n * mean(gy * n)) with gy = g * weight, n = x * rstd.
  const at::Tensor gy = g * weight;
  const at::Tensor mean = (gy * normed).mean(-1, /*keepdim=*/true);
  const at::Tensor gx = at::addcmul(gy, normed, mean, -1).mul_(rstd);
  return {gx.to(x.scalar_type()), gw.to(weight.scalar_type())};
}

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, double sign) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const int64_t half = x.size(-1) / 2;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor y1 = y.narrow(-1, 0, half), y2 = y.narrow(-1, half, half);
  at::mul_out(y1, x1, cos);
  y1.addcmul_(x2, sin, -sign);
  at::mul_out(y2, x2, cos);
  y2.addcmul_(x1, sin, sign);
  return y;
}

at::Tensor SwiGluApply(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

std::pair<at::Tensor, at::Tensor> SwiGluGrad(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor d_up = at::silu(gate).mul_(grad);
  return {at::silu_backward(grad * up, gate), d_up};
}

std::pair<at::Tensor, at::Tensor> SwiGluGradInto(at::Tensor grad, const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor d_up = at::silu(gate).mul_(grad);
  grad.mul_(up);
  at::silu_backward_out(grad, grad, gate);
  return {grad, d_up};
}

}  // namespace trainyard::model
