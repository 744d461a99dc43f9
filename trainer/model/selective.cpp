#include "trainer/model/selective.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "trainer/model/kernels.h"
#include "trainer/model/ops.h"

namespace trainyard::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Backward adds the products' gradients up from the last matrix to the first, as autograd does with the plain
// operations: floating point would tell another order.
class RmsNormLinearsFunction : public torch::autograd::Function<RmsNormLinearsFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps,
                               at::TensorList matrices) {
    const at::Tensor rstd = RmsReciprocal(x, eps);
    const at::Tensor normed = RmsApply(x, weight, rstd);
    variable_list saved{x, weight, rstd}, products;
    for (const at::Tensor& matrix : matrices) {
      saved.push_back(matrix);
      products.push_back(at::linear(normed, matrix));
    }
    ctx->save_for_backward(std::move(saved));
    return products;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    variable_list result(3 + grads.size());
    at::Tensor d_normed;
    {
      const at::Tensor normed = RmsApply(x, weight, rstd);
      for (size_t i = grads.size(); i-- > 0;) {
        if (ctx->needs_input_grad(2 + i)) result[3 + i] = grads[i].t().mm(normed);
        const at::Tensor part = grads[i].mm(saved[3 + i]);
        d_normed = d_normed.defined() ? d_normed.add_(part) : part;
        grads[i].reset();
      }
    }
    std::tie(result[0], result[1]) = RmsGrad(d_normed, x, weight, rstd);
    return result;
  }
};

at::Tensor HeadsFirst(const at::Tensor& x) { return x.transpose(1, 2); }
// [b, heads, s, d] -> [b*s, heads*d]; a view of what attention kernels give.
at::Tensor TokensFirst(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)});
}

// On the CPU attention's own forward and backward are called, but for several documents in a row. Other devices choose
// among kernels by shape and type, and each has a backward of its own: there attention runs forward once more, and
// autograd does the rest.
class RopeAttentionFunction : public torch::autograd::Function<RopeAttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& cos, const at::Tensor& sin, std::vector<int64_t> lengths) {
    const at::Tensor rq = Rotate(q, cos, sin, 1.0), rk = Rotate(k, cos, sin, 1.0);
    if (!q.is_cpu() || !lengths.empty()) {
      ctx->save_for_backward({q, k, v, cos, sin});
      ctx->saved_data["lengths"] = lengths;
      return CausalAttention(rq, rk, v, lengths);
    }
    const auto [heads, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
        HeadsFirst(rq), HeadsFirst(rk), HeadsFirst(v), 0.0, /*is_causal=*/true);
    const at::Tensor y = TokensFirst(heads);
    ctx->save_for_backward({q, k, v, cos, sin, log_sum_exp, y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &cos = saved[3], &sin = saved[4];
    at::Tensor rq = Rotate(q, cos, sin, 1.0), rk = Rotate(k, cos, sin, 1.0), dq, dk, dv;
    if (saved.size() > 5) {
      const auto heads = [&](const at::Tensor& rows) { return HeadsFirst(rows.reshape(q.sizes())); };
      std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          heads(grads[0]), HeadsFirst(rq), HeadsFirst(rk), HeadsFirst(v), heads(saved[6]), saved[5], 0.0,
          /*is_causal=*/true);
      dq = HeadsFirst(dq), dk = HeadsFirst(dk), dv = HeadsFirst(dv);
    } else {
      at::AutoGradMode with_graph(true);
      const variable_list inputs{rq.set_requires_grad(true), rk.set_requires_grad(true),
                                 v.detach().set_requires_grad(true)};
      const at::Tensor y = CausalAttention(inputs[0], inputs[1], inputs[2], ctx->saved_data["lengths"].toIntVector());
      const variable_list d = torch::autograd::grad({y}, inputs, {grads[0]});
      dq = d[0], dk = d[1], dv = d[2];
    }
    return {Rotate(dq, cos, sin, -1.0), Rotate(dk, cos, sin, -1.0), dv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// A result whose value nobody reads: one zero, seen [rows, columns] times.
at::Tensor NoValue(int64_t rows, int64_t columns, const at::Tensor& like) {
  return at::zeros({1, 1}, like.options()).expand({rows, columns});
}

class SwiGluLinearFunction : public torch::autograd::Function<SwiGluLinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& matrix, bool value) {
    ctx->save_for_backward({gate, up, matrix});
    return value ? at::linear(SwiGluApply(gate, up), matrix) : NoValue(gate.size(0), matrix.size(0), gate);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], &matrix = saved[2];
    at::Tensor d_matrix;
    if (ctx->needs_input_grad(2)) d_matrix = grads[0].t().mm(SwiGluApply(gate, up));
    const auto [d_gate, d_up] = SwiGluGradInto(grads[0].mm(matrix), gate, up);
    return {d_gate, d_up, d_matrix, at::Tensor()};
  }
};

class LayerNormAffineFunction : public torch::autograd::Function<LayerNormAffineFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double eps, const at::Tensor& matrix, const at::Tensor& offset) {
    const auto [normed, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, weight, bias, eps);
    ctx->save_for_backward({x, weight, bias, matrix, mean, rstd});
    ctx->saved_data["eps"] = eps;
    return at::addmm(offset, normed, matrix);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &matrix = saved[3], &g = grads[0];
    const int64_t h = x.size(1);
    at::Tensor d_matrix;
    if (ctx->needs_input_grad(3)) {
      const double eps = ctx->saved_data["eps"].toDouble();
      d_matrix = std::get<0>(at::native_layer_norm(x, {h}, weight, bias, eps)).t().mm(g);
    }
    const auto [dx, d_weight, d_bias] =
        at::native_layer_norm_backward(g.mm(matrix.t()), x, {h}, saved[4], saved[5], weight, bias, {true, true, true});
    return {dx, d_weight, d_bias, at::Tensor(), d_matrix, g.sum(0)};
  }
};

class GeluAffineFunction : public torch::autograd::Function<GeluAffineFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& matrix,
                            const at::Tensor& offset, bool value) {
    ctx->save_for_backward({x, matrix});
    return value ? at::addmm(offset, at::gelu(x, "tanh"), matrix) : NoValue(x.size(0), matrix.size(1), x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &matrix = saved[1], &g = grads[0];
    at::Tensor d_matrix;
    if (ctx->needs_input_grad(1)) d_matrix = at::gelu(x, "tanh").t().mm(g);
    at::Tensor dx = g.mm(matrix.t());
    at::gelu_backward_out(dx, dx, x, "tanh");
    return {dx, d_matrix, g.sum(0), at::Tensor()};
  }
};

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef lengths) {
  if (!lengths.empty()) {
    // Splits, not slices: their backward is one concatenation.
    const auto parts = [&](const at::Tensor& x) { return x.flatten(0, 1).split_with_sizes(lengths); };
    const std::vector<at::Tensor> qs = parts(q), ks = parts(k), vs = parts(v);
    std::vector<at::Tensor> mixed;
    for (size_t i = 0; i < qs.size(); ++i) {
      mixed.push_back(CausalAttention(qs[i].unsqueeze(0), ks[i].unsqueeze(0), vs[i].unsqueeze(0)));
    }
    return at::cat(mixed);
  }
  return TokensFirst(at::scaled_dot_product_attention(HeadsFirst(q), HeadsFirst(k), HeadsFirst(v), {}, 0.0,
                                                      /*is_causal=*/true, std::nullopt,
                                                      /*enable_gqa=*/q.size(2) != k.size(2)));
}

at::Tensor LayerNormAffine(Keep keep, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           const at::Tensor& matrix, const at::Tensor& offset) {
  if (keep == Keep::kProducts) return LayerNormAffineFunction::apply(x, weight, bias, eps, matrix, offset);
  return at::addmm(offset, at::layer_norm(x, {x.size(1)}, weight, bias, eps), matrix);
}

at::Tensor GeluAffine(Keep keep, const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& offset) {
  if (keep != Keep::kAll) return GeluAffineFunction::apply(x, matrix, offset, keep == Keep::kProducts);
  return at::addmm(offset, at::gelu(x, "tanh"), matrix);
}

std::vector<at::Tensor> RmsNormLinears(Keep keep, const at::Tensor& x, const at::Tensor& weight, double eps,
                                       at::TensorList matrices) {
  if (keep == Keep::kProducts) return RmsNormLinearsFunction::apply(x, weight, eps, matrices);
  const at::Tensor normed = RmsNorm(x, weight, eps);
  std::vector<at::Tensor> products;
  for (const at::Tensor& matrix : matrices) products.push_back(at::linear(normed, matrix));
  return products;
}

at::Tensor RopeAttention(Keep keep, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& cos, const at::Tensor& sin, at::IntArrayRef lengths) {
  if (keep == Keep::kProducts) return RopeAttentionFunction::apply(q, k, v, cos, sin, lengths.vec());
  return CausalAttention(Rope(q, cos, sin), Rope(k, cos, sin), v, lengths);
}

at::Tensor SwiGluLinear(Keep keep, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& matrix) {
  if (keep != Keep::kAll) return SwiGluLinearFunction::apply(gate, up, matrix, keep == Keep::kProducts);
  return at::linear(SwiGlu(gate, up), matrix);
}

}  // namespace trainyard::model
