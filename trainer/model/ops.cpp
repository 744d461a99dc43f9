#include "trainer/model/ops.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "trainer/model/fused.h"
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

// Of each row the cross-entropy times its weight, summed; with `gradient` the logits become the gradient of that.
// logits: [n, V] contiguous, float or double; targets: [n]; weights: [n] in the same type or undefined.
at::Tensor CrossEntropySum(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& weights, bool gradient) {
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat) {
    const int64_t n = logits.size(0), v = logits.size(1);
    at::Tensor each = at::empty({n}, at::kDouble);
    const at::Tensor target = targets.contiguous(), weight = weights.defined() ? weights.contiguous() : weights;
    auto* const row = logits.mutable_data_ptr<float>();
    auto* const out = each.mutable_data_ptr<double>();
    const auto* const t = target.const_data_ptr<int64_t>();
    const auto* const w = weight.defined() ? weight.const_data_ptr<float>() : nullptr;
    at::parallel_for(0, n, 1, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i) {
        const float scale = w == nullptr ? 1.0F : w[i];
        out[i] = scale * fused::CrossEntropy(row + i * v, v, t[i], gradient, scale);
      }
    });
    return each.sum();
  }
  const at::Tensor target = targets.unsqueeze(1);
  at::Tensor log_p = at::log_softmax(logits, 1);
  logits.reset();  // two of this size are enough
  at::Tensor nll = log_p.gather(1, target).to(at::kDouble).neg_();
  if (weights.defined()) nll.mul_(weights.unsqueeze(1));
  if (gradient) {
    logits = log_p.exp_();
    logits.scatter_add_(1, target, at::full({1, 1}, -1.0, logits.options()).expand_as(target));
    if (weights.defined()) logits.mul_(weights.unsqueeze(1));
  }
  return nll.sum();
}

class HeadLossFunction : public torch::autograd::Function<HeadLossFunction> {
 public:
  // Gradients are made here, of the head only where it is trained.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& head,
                            const at::Tensor& targets, const std::optional<at::Tensor>& weights, bool with_gradients) {
    const bool trained = head.requires_grad();
    const at::ScalarType type = AtLeastFloat(x);
    const int64_t n = x.size(0), chunk = std::max<int64_t>(64, kChunkElements / head.size(0));
    at::Tensor loss = at::zeros({}, x.options().dtype(at::kDouble));
    at::Tensor dx, dw;
    if (with_gradients) dx = at::empty_like(x);
    for (int64_t lo = 0; lo < n; lo += chunk) {
      const int64_t len = std::min(chunk, n - lo);
      const at::Tensor part = x.narrow(0, lo, len);
      at::Tensor logits = at::mm(part, head.t()).to(type);
      const at::Tensor weight = weights ? weights->narrow(0, lo, len).to(type) : at::Tensor();
      loss.add_(CrossEntropySum(logits, targets.narrow(0, lo, len), weight, with_gradients));
      if (!with_gradients) continue;
      const at::Tensor d = logits.to(x.scalar_type());
      at::Tensor dx_part = dx.narrow(0, lo, len);
      at::mm_out(dx_part, d, head);
      if (!trained) continue;
      // The sum over chunks is in fp32 at least.
      if (!dw.defined()) {
        dw = at::mm(d.t(), part);
        if (lo + len < n) dw = dw.to(type);
      } else if (dw.scalar_type() == d.scalar_type()) {
        dw.addmm_(d.t(), part);
      } else {
        dw.add_(at::mm(d.t(), part));
      }
    }
    if (with_gradients) {
      // Gradients, not variables of the graph: kept as plain tensors.
      ctx->saved_data["dx"] = dx;
      if (trained) ctx->saved_data["dw"] = dw.to(head.scalar_type());
    }
    return loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor dx = ctx->saved_data["dx"].toTensor(), dw;
    if (ctx->saved_data.count("dw") > 0) dw = ctx->saved_data["dw"].toTensor();
    ctx->saved_data.clear();  // used once: the parameter's gradient may then be taken without a copy
    // The usual seed is one, and then nothing needs to be multiplied. (On other devices looking would stall the queue.)
    if (!grads[0].is_cpu() || grads[0].item<double>() != 1.0) {
      dx = dx * grads[0].to(dx.scalar_type());
      if (dw.defined()) dw = dw * grads[0].to(dw.scalar_type());
    }
    return {dx, dw, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!at::GradMode::is_enabled()) return RmsApply(x, weight, RmsReciprocal(x, eps));
  return RmsNormFunction::apply(x, weight, eps);
}

at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (!at::GradMode::is_enabled()) return Rotate(x, cos, sin, 1.0);
  return RopeFunction::apply(x, cos, sin);
}

at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) {
  if (!at::GradMode::is_enabled()) return SwiGluApply(gate, up);
  return SwiGluFunction::apply(gate, up);
}

at::Tensor HeadLossSum(const at::Tensor& x, const at::Tensor& head, const at::Tensor& targets,
                       const at::Tensor& weights) {
  const bool with_gradients = at::GradMode::is_enabled() && (x.requires_grad() || head.requires_grad());
  // Function does not take undefined tensors.
  const std::optional<at::Tensor> given = weights.defined() ? std::make_optional(weights) : std::nullopt;
  return HeadLossFunction::apply(x, head, targets, given, with_gradients);
}

}  // namespace trainyard::model
