#include "trainer/model/kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "trainer/model/fused.h"

namespace trainyard::model {
namespace {

constexpr int64_t kGrain = 1 << 14;      // elements per thread that are worth a thread
constexpr int64_t kRowsPerPartial = 64;  // of a weight's gradient: fixed, so that threads do not change the bits

// Floats on the CPU go through the one-pass kernels, whatever their strides: a value must not depend on who asks for
// it.
bool OnePass(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

// fn(first, count) over pieces of n rows of `width` elements.
template <typename Fn>
void OverRows(int64_t n, int64_t width, const Fn& fn) {
  at::parallel_for(0, n, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)),
                   [&](int64_t lo, int64_t hi) { fn(lo, hi - lo); });
}

const float* In(const at::Tensor& contiguous) { return contiguous.const_data_ptr<float>(); }
float* Out(const at::Tensor& contiguous) { return contiguous.mutable_data_ptr<float>(); }
at::Tensor Like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

std::pair<at::Tensor, at::Tensor> RmsGradInOnePass(const at::Tensor& grad, const at::Tensor& x,
                                                   const at::Tensor& weight, const at::Tensor& rstd) {
  const int64_t n = x.size(0), h = x.size(1), parts = (n + kRowsPerPartial - 1) / kRowsPerPartial;
  const at::Tensor g = grad.contiguous(), from = x.contiguous(), w = weight.contiguous();
  at::Tensor gx = Like(from), gw = at::zeros({parts, h}, x.options());
  at::parallel_for(0, parts, std::max<int64_t>(1, kGrain / (kRowsPerPartial * h)), [&](int64_t lo, int64_t hi) {
    for (int64_t p = lo; p < hi; ++p) {
      const int64_t first = p * kRowsPerPartial, rows = std::min(kRowsPerPartial, n - first);
      fused::RmsGrad(In(g) + first * h, In(from) + first * h, In(w), In(rstd) + first, rows, h, Out(gx) + first * h,
                     Out(gw) + p * h);
    }
  });
  return {gx, gw.sum(0)};
}

at::Tensor RotateInOnePass(const at::Tensor& any, const at::Tensor& cos, const at::Tensor& sin, double sign) {
  const at::Tensor x = any.stride(-1) == 1 ? any : any.contiguous(), c = cos.contiguous(), s = sin.contiguous();
  const int64_t length = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  at::Tensor y = Like(x);
  OverRows(x.size(0) * length, heads * 2 * half, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t batch = i / length, position = i % length;
      const int64_t angle = (c.dim() == 4 ? i : position) * half;  // a table of each row, or one of all
      fused::Rotate(In(x) + batch * x.stride(0) + position * x.stride(1), x.stride(2), In(c) + angle, In(s) + angle,
                    static_cast<float>(sign), heads, half, Out(y) + i * heads * 2 * half);
    }
  });
  return y;
}

// Writes the gate's gradient into `d_gate`, contiguous, which may be `grad`.
at::Tensor SwiGluGradInOnePass(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                               const at::Tensor& d_gate) {
  const at::Tensor a = gate.contiguous(), b = up.contiguous();
  at::Tensor d_up = Like(b);
  OverRows(a.numel(), 1, [&](int64_t first, int64_t count) {
    fused::SwiGluGrad(In(grad) + first, In(a) + first, In(b) + first, count, Out(d_gate) + first, Out(d_up) + first);
  });
  return d_up;
}

}  // namespace

at::ScalarType AtLeastFloat(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor RmsReciprocal(const at::Tensor& x, double eps) {
  if (OnePass(x)) {
    const at::Tensor from = x.contiguous();
    at::Tensor rstd = at::empty({x.size(0), 1}, x.options());
    OverRows(x.size(0), x.size(1), [&](int64_t first, int64_t count) {
      fused::RmsReciprocal(In(from) + first * x.size(1), count, x.size(1), eps, Out(rstd) + first);
    });
    return rstd;
  }
  return x.to(AtLeastFloat(x)).square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

at::Tensor RmsApply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  if (OnePass(x)) {
    const at::Tensor from = x.contiguous(), w = weight.contiguous();
    at::Tensor y = Like(from);
    const int64_t h = x.size(1);
    OverRows(x.size(0), h, [&](int64_t first, int64_t count) {
      fused::RmsApply(In(from) + first * h, In(w), In(rstd) + first, count, h, Out(y) + first * h);
    });
    return y;
  }
  return (x.to(rstd.scalar_type()) * rstd).to(x.scalar_type()).mul_(weight);
}

std::pair<at::Tensor, at::Tensor> RmsGrad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& rstd) {
  if (OnePass(x)) return RmsGradInOnePass(grad, x, weight, rstd);
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
  if (OnePass(x)) return RotateInOnePass(x, cos, sin, sign);
  at::Tensor y = Like(x);
  const int64_t half = x.size(-1) / 2;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor y1 = y.narrow(-1, 0, half), y2 = y.narrow(-1, half, half);
  at::mul_out(y1, x1, cos);
  y1.addcmul_(x2, sin, -sign);
  at::mul_out(y2, x2, cos);
  y2.addcmul_(x1, sin, sign);
  return y;
}

at::Tensor SwiGluApply(const at::Tensor& gate, const at::Tensor& up) {
  if (!OnePass(gate)) return at::silu(gate).mul_(up);
  const at::Tensor a = gate.contiguous(), b = up.contiguous();
  at::Tensor y = Like(a);
  OverRows(a.numel(), 1,
           [&](int64_t first, int64_t count) { fused::SwiGlu(In(a) + first, In(b) + first, count, Out(y) + first); });
  return y;
}

std::pair<at::Tensor, at::Tensor> SwiGluGrad(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  if (OnePass(grad)) {
    const at::Tensor d_gate = Like(grad);
    const at::Tensor d_up = SwiGluGradInOnePass(grad.contiguous(), gate, up, d_gate);
    return {d_gate, d_up};
  }
  at::Tensor d_up = at::silu(gate).mul_(grad);
  return {at::silu_backward(grad * up, gate), d_up};
}

std::pair<at::Tensor, at::Tensor> SwiGluGradInto(at::Tensor grad, const at::Tensor& gate, const at::Tensor& up) {
  if (OnePass(grad)) {
    grad = grad.contiguous();
    const at::Tensor d_up = SwiGluGradInOnePass(grad, gate, up, grad);
    return {grad, d_up};
  }
  at::Tensor d_up = at::silu(gate).mul_(grad);
  grad.mul_(up);
  at::silu_backward_out(grad, grad, gate);
  return {grad, d_up};
}

}  // namespace trainyard::model
