#include "trainer/model/ops.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "trainer/model/kernels.h"

namespace trainyard::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkElements = 1 << 22;  // of logits alive at once

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps) {
    const at::Tensor rstd = RmsReciprocal(x, eps);
    ctx->save_for_backward({x, weight, rstd});
    return RmsApply(x, weight, rstd);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [gx, gw] = RmsGrad(grads[0], saved[0], saved[1], saved[2]);
    return {gx, gw, at::Tensor()};
  }
};

class RopeFunction : public torch::autograd::Function<RopeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return Rotate(x, cos, sin, 1.0);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {Rotate(grads[0], saved[0], saved[1], -1.0), at::Tensor(), at::Tensor()};
  }
};

class SwiGluFunction : public torch::autograd::Function<SwiGluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    return SwiGluApply(gate, up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [d_gate, d_up] = SwiGluGrad(grads[0], saved[0], saved[1]);
    return {d_gate, d_up};
  }
};

class HeadLossFunction : public torch::autograd::Function<HeadLossFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& head,
                            const at::Tensor& targets, const std::optional<at::Tensor>& weights, bool with_gradients) {
    const at::ScalarType type = AtLeastFloat(x);
    const int64_t n = x.size(0), chunk = std::max<int64_t>(64, kChunkElements / head.size(0));
    at::Tensor loss = at::zeros({}, x.options().dtype(at::kDouble));
    at::Tensor dx, dw;
    if (with_gradients) dx = at::empty_like(x);
    for (int64_t lo = 0; lo < n; lo += chunk) {
      const int64_t len = std::min(chunk, n - lo);
      const at::Tensor part = x.narrow(0, lo, len);
      const at::Tensor target = targets.narrow(0, lo, len).unsqueeze(1);
      const at::Tensor log_p = at::log_softmax(at::mm(part, head.t()).to(type), 1);
      at::Tensor nll = log_p.gather(1, target).to(at::kDouble).neg_();
      at::Tensor weight;
      if (weights) {
        weight = weights->narrow(0, lo, len).unsqueeze(1).to(type);
        nll.mul_(weight);
      }
      loss.add_(nll.sum());
      if (!with_gradients) continue;
      at::Tensor d_logits = at::exp(log_p);
      d_logits.scatter_add_(1, target, at::full({1, 1}, -1.0, d_logits.options()).expand({len, 1}));
      if (weight.defined()) d_logits.mul_(weight);
      const at::Tensor d = d_logits.to(x.scalar_type());
      at::Tensor dx_part = dx.narrow(0, lo, len);
      at::mm_out(dx_part, d, head);
      // The sum over chunks is in fp32 at least.
      const at::Tensor dw_part = at::mm(d.t(), part);
      dw = dw.defined() ? dw.add_(dw_part) : (lo + len < n ? dw_part.to(type) : dw_part);
    }
    if (with_gradients) {
      // Gradients, not variables of the graph: kept as plain tensors.
      ctx->saved_data["dx"] = dx;
      ctx->saved_data["dw"] = dw.to(head.scalar_type());
    }
    return loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor dx = ctx->saved_data["dx"].toTensor(), dw = ctx->saved_data["dw"].toTensor();
    ctx->saved_data.clear();  // used once: the parameter's gradient may then be taken without a copy
    // The usual seed is one, and then nothing needs to be multiplied. (On other devices looking would stall the queue.)
    if (!grads[0].is_cpu() || grads[0].item<double>() != 1.0) {
      dx = dx * grads[0].to(dx.scalar_type());
      dw = dw * grads[0].to(dw.scalar_type());
    }
    return {dx, dw, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return RmsNormFunction::apply(x, weight, eps);
}

at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return RopeFunction::apply(x, cos, sin);
}

at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) { return SwiGluFunction::apply(gate, up); }

at::Tensor HeadLossSum(const at::Tensor& x, const at::Tensor& head, const at::Tensor& targets,
                       const at::Tensor& weights) {
  const bool with_gradients = at::GradMode::is_enabled() && (x.requires_grad() || head.requires_grad());
  // Function does not take undefined tensors.
  const std::optional<at::Tensor> given = weights.defined() ? std::make_optional(weights) : std::nullopt;
  return HeadLossFunction::apply(x, head, targets, given, with_gradients);
}

}  // namespace trainyard::model
