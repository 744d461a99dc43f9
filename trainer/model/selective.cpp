#include "trainer/model/selective.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "trainer/model/kernels.h"
#include "trainer/model/ops.h"
#include "trainer/model/row_product.h"

namespace trainyard::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor Product(const at::Tensor& x, const at::Tensor& matrix, at::TensorList biases, size_t i) {
  return LinearProduct(x, matrix, biases.empty() ? at::Tensor() : biases[i]);
}

// Backward adds the products' gradients up from the last matrix to the first, as autograd does with the plain
// operations: floating point would tell another order.
class RmsNormLinearsFunction : public torch::autograd::Function<RmsNormLinearsFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps,
                               at::TensorList matrices, at::TensorList biases) {
    const at::Tensor rstd = RmsReciprocal(x, eps);
    const at::Tensor normed = RmsApply(x, weight, rstd);
    variable_list saved{x, weight, rstd}, products;
    for (size_t i = 0; i < matrices.size(); ++i) {
      saved.push_back(matrices[i]);
      products.push_back(Product(normed, matrices[i], biases, i));
    }
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biases"] = !biases.empty();
    return products;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const size_t matrices = grads.size();
    const bool biases = ctx->saved_data["biases"].toBool();
    variable_list result(3 + (biases ? 2 : 1) * matrices);
    at::Tensor d_normed;
    {
      const at::Tensor normed = RmsApply(x, weight, rstd);
      for (size_t i = matrices; i-- > 0;) {
        if (ctx->needs_input_grad(2 + i)) result[3 + i] = grads[i].t().mm(normed);
        if (biases && ctx->needs_input_grad(2 + matrices + i)) result[3 + matrices + i] = grads[i].sum(0);
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

// A norm over each head of x, [b, s, heads, d], or x itself without one.
struct NormedHeads {
  at::Tensor value;
  at::Tensor rstd;  // undefined without a norm
};
at::Tensor HeadRows(const at::Tensor& x) { return x.reshape({-1, x.size(3)}); }
NormedHeads NormHeads(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps) {
  if (!weight) return {x, {}};
  const at::Tensor rows = HeadRows(x), rstd = RmsReciprocal(rows, eps);
  return {RmsApply(rows, *weight, rstd).view(x.sizes()), rstd};
}

// On the CPU attention's own forward and backward are called, but for several documents in a row and within a window.
// Other devices choose among kernels by shape and type, and each has a backward of its own: there attention runs
// forward once more, and autograd does the rest.
class RopeAttentionFunction : public torch::autograd::Function<RopeAttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& cos, const at::Tensor& sin, const std::optional<at::Tensor>& query_norm,
                            const std::optional<at::Tensor>& key_norm, std::vector<int64_t> lengths, double eps,
                            int64_t window) {
    const NormedHeads nq = NormHeads(q, query_norm, eps), nk = NormHeads(k, key_norm, eps);
    const at::Tensor rq = Rotate(nq.value, cos, sin, 1.0), rk = Rotate(nk.value, cos, sin, 1.0);
    variable_list saved{q, k, v, cos, sin};
    if (query_norm) saved.insert(saved.end(), {*query_norm, *key_norm, nq.rstd, nk.rstd});
    const bool again = !q.is_cpu() || !lengths.empty() || window > 0;
    ctx->saved_data["normed"] = query_norm.has_value();
    ctx->saved_data["lengths"] = lengths;
    ctx->saved_data["window"] = window;
    at::Tensor y;
    if (again) {
      y = CausalAttention(rq, rk, v, lengths, window);
    } else {
      const auto [heads, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
          HeadsFirst(rq), HeadsFirst(rk), HeadsFirst(v), 0.0, /*is_causal=*/true);
      y = TokensFirst(heads);
      saved.insert(saved.end(), {log_sum_exp, y});
    }
    ctx->save_for_backward(std::move(saved));
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &cos = saved[3], &sin = saved[4];
    const bool normed = ctx->saved_data["normed"].toBool();
    const auto turned = [&](const at::Tensor& x, size_t weight) {
      const at::Tensor value = normed ? RmsApply(HeadRows(x), saved[weight], saved[weight + 2]).view(x.sizes()) : x;
      return Rotate(value, cos, sin, 1.0);
    };
    variable_list d = AttentionGrad(ctx, saved, normed ? 9 : 5, turned(q, 5), turned(k, 6), grads[0]);
    variable_list result(10);
    result[0] = Rotate(d[0], cos, sin, -1.0), result[1] = Rotate(d[1], cos, sin, -1.0), result[2] = d[2];
    d.clear();
    for (const size_t i : {0, 1}) {
      if (!normed) break;
      const at::Tensor& x = saved[i];
      auto [dx, d_weight] = RmsGrad(HeadRows(result[i]), HeadRows(x), saved[5 + i], saved[7 + i]);
      result[i] = dx.view(x.sizes());
      result[5 + i] = d_weight;
    }
    return result;
  }

 private:
  // Gradients of rotated queries, rotated keys and values. What the kernel gave is at `given` of `saved`, or nothing.
  static variable_list AttentionGrad(AutogradContext* ctx, const variable_list& saved, size_t given, at::Tensor rq,
                                     at::Tensor rk, const at::Tensor& grad) {
    const at::Tensor& v = saved[2];
    if (saved.size() > given) {
      const auto heads = [&](const at::Tensor& rows) { return HeadsFirst(rows.reshape(rq.sizes())); };
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          heads(grad), HeadsFirst(rq), HeadsFirst(rk), HeadsFirst(v), heads(saved[given + 1]), saved[given], 0.0,
          /*is_causal=*/true);
      return {HeadsFirst(dq), HeadsFirst(dk), HeadsFirst(dv)};
    }
    at::AutoGradMode with_graph(true);
    const variable_list inputs{rq.set_requires_grad(true), rk.set_requires_grad(true),
                               v.detach().set_requires_grad(true)};
    const at::Tensor y = CausalAttention(inputs[0], inputs[1], inputs[2], ctx->saved_data["lengths"].toIntVector(),
                                         ctx->saved_data["window"].toInt());
    return torch::autograd::grad({y}, inputs, {grad});
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

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& mask) {
  return at::scaled_dot_product_attention(q, k, v, mask, 0.0, /*is_causal=*/!mask.has_value(), std::nullopt,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

// Stretches of queries, each over the keys that it sees: neither memory nor time for all pairs. q: [b, heads, s, d]
// to the same; of k and v the last s tokens.
at::Tensor WindowAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  constexpr int64_t kLeast = 128;  // shorter stretches would be calls without work
  const int64_t s = q.size(2), ahead = k.size(2) - s, stretch = std::max(window, kLeast);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < s; begin += stretch) {
    const int64_t n = std::min(stretch, s - begin), first = std::max<int64_t>(0, ahead + begin - window + 1);
    const int64_t before = ahead + begin - first, keys = before + n;
    // Query i of the stretch is token before + i of its keys.
    const at::Tensor band = at::ones({n, keys}, q.options().dtype(at::kBool)).triu_(before - window + 1).tril_(before);
    parts.push_back(Attend(q.narrow(2, begin, n), k.narrow(2, first, keys), v.narrow(2, first, keys), band));
  }
  return at::cat(parts, 2);
}

// One query of each head over the keys that it sees. Heads that share keys are queries of one head, so that their keys
// are read once and nothing is masked. q: [b, heads, 1, d] to the same.
at::Tensor LastAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  const int64_t tokens = k.size(2), seen = window > 0 ? std::min(window, tokens) : tokens;
  const at::Tensor grouped = q.reshape({q.size(0), k.size(1), q.size(1) / k.size(1), q.size(3)});
  return at::scaled_dot_product_attention(grouped, k.narrow(2, tokens - seen, seen), v.narrow(2, tokens - seen, seen))
      .reshape(q.sizes());
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef lengths,
                           int64_t window) {
  if (!lengths.empty()) {
    // Splits, not slices: their backward is one concatenation.
    const auto parts = [&](const at::Tensor& x) { return x.flatten(0, 1).split_with_sizes(lengths); };
    const std::vector<at::Tensor> qs = parts(q), ks = parts(k), vs = parts(v);
    std::vector<at::Tensor> mixed;
    for (size_t i = 0; i < qs.size(); ++i) {
      mixed.push_back(CausalAttention(qs[i].unsqueeze(0), ks[i].unsqueeze(0), vs[i].unsqueeze(0), {}, window));
    }
    return at::cat(mixed);
  }
  const int64_t s = q.size(1), tokens = k.size(1);
  if (s == 1 && tokens > 1) return TokensFirst(LastAttention(HeadsFirst(q), HeadsFirst(k), HeadsFirst(v), window));
  if (s < tokens || (window > 0 && window < tokens)) {
    return TokensFirst(WindowAttention(HeadsFirst(q), HeadsFirst(k), HeadsFirst(v), window > 0 ? window : tokens));
  }
  return TokensFirst(Attend(HeadsFirst(q), HeadsFirst(k), HeadsFirst(v), std::nullopt));
}

at::Tensor LayerNormAffine(Keep keep, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           const at::Tensor& matrix, const at::Tensor& offset) {
  if (keep == Keep::kProducts) return LayerNormAffineFunction::apply(x, weight, bias, eps, matrix, offset);
  return AffineProduct(offset, at::layer_norm(x, {x.size(1)}, weight, bias, eps), matrix);
}

at::Tensor GeluAffine(Keep keep, const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& offset) {
  if (keep != Keep::kAll) return GeluAffineFunction::apply(x, matrix, offset, keep == Keep::kProducts);
  return AffineProduct(offset, at::gelu(x, "tanh"), matrix);
}

std::vector<at::Tensor> RmsNormLinears(Keep keep, const at::Tensor& x, const at::Tensor& weight, double eps,
                                       at::TensorList matrices, at::TensorList biases) {
  if (keep == Keep::kProducts) return RmsNormLinearsFunction::apply(x, weight, eps, matrices, biases);
  const at::Tensor normed = RmsNorm(x, weight, eps);
  std::vector<at::Tensor> products;
  for (size_t i = 0; i < matrices.size(); ++i) products.push_back(Product(normed, matrices[i], biases, i));
  return products;
}

at::Tensor RopeAttention(Keep keep, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& cos, const at::Tensor& sin, at::IntArrayRef lengths,
                         const AttentionOptions& options) {
  const int64_t window = options.window < q.size(1) ? options.window : 0;  // one that holds the row is none
  if (keep == Keep::kProducts && options.cache == nullptr) {
    const auto given = [](const at::Tensor& w) { return w.defined() ? std::make_optional(w) : std::nullopt; };
    return RopeAttentionFunction::apply(q, k, v, cos, sin, given(options.query_norm), given(options.key_norm),
                                        lengths.vec(), options.norm_eps, window);
  }
  const auto turned = [&](const at::Tensor& x, const at::Tensor& weight) {
    return Rope(weight.defined() ? RmsNorm(HeadRows(x), weight, options.norm_eps).view(x.sizes()) : x, cos, sin);
  };
  const at::Tensor queries = turned(q, options.query_norm), keys = turned(k, options.key_norm);
  if (options.cache == nullptr) return CausalAttention(queries, keys, v, lengths, window);
  const KeyValueCache::View all = options.cache->Append(options.layer, keys, v);
  return CausalAttention(queries, all.keys, all.values, {}, options.window);
}

at::Tensor SwiGluLinear(Keep keep, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& matrix) {
  if (keep != Keep::kAll) return SwiGluLinearFunction::apply(gate, up, matrix, keep == Keep::kProducts);
  return LinearProduct(SwiGlu(gate, up), matrix);
}

}  // namespace trainyard::model
