#include "trainer/model/selective.h"

#include <algorithm>
#include <optional>

#include "trainer/model/kernels.h"
#include "trainer/model/ops.h"
#include "trainer/model/stretch.h"

namespace trainyard::model {
namespace {

// What stands before the products of a stretch (stretch.h).
struct RmsFront {
  static constexpr bool kKeepsInput = true;
  double eps;
  at::Tensor Value(const variable_list& in, variable_list& statistics) const {  // in: x, weight
    if (statistics.empty()) statistics = {RmsReciprocal(in[0], eps)};
    return RmsApply(in[0], in[1], statistics[0]);
  }
  variable_list Grad(at::Tensor d, const variable_list& in, const variable_list& statistics) const {
    auto [dx, d_weight] = RmsGrad(d, in[0], in[1], statistics[0]);
    return {dx, d_weight};
  }
};

struct LayerNormFront {
  static constexpr bool kKeepsInput = true;
  double eps;
  at::Tensor Value(const variable_list& in, variable_list& statistics) const {  // in: x, weight, bias
    auto [normed, mean, rstd] = at::native_layer_norm(in[0], {in[0].size(1)}, in[1], in[2], eps);
    if (statistics.empty()) statistics = {mean, rstd};
    return normed;
  }
  variable_list Grad(at::Tensor d, const variable_list& in, const variable_list& statistics) const {
    auto [dx, d_weight, d_bias] = at::native_layer_norm_backward(d, in[0], {in[0].size(1)}, statistics[0],
                                                                 statistics[1], in[1], in[2], {true, true, true});
    return {dx, d_weight, d_bias};
  }
};

struct SwiGluFront {
  static constexpr bool kKeepsInput = true;
  at::Tensor Value(const variable_list& in, variable_list& /*statistics*/) const {  // in: gate, up
    return SwiGluApply(in[0], in[1]);
  }
  variable_list Grad(at::Tensor d, const variable_list& in, const variable_list& /*statistics*/) const {
    auto [d_gate, d_up] = SwiGluGradInto(std::move(d), in[0], in[1]);
    return {d_gate, d_up};
  }
};

struct GeluFront {
  static constexpr bool kKeepsInput = true;
  at::Tensor Value(const variable_list& in, variable_list& /*statistics*/) const { return at::gelu(in[0], "tanh"); }
  variable_list Grad(at::Tensor d, const variable_list& in, const variable_list& /*statistics*/) const {
    at::gelu_backward_out(d, d, in[0], "tanh");
    return {d};
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

at::Tensor LayerNormLinear(Keep keep, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           const Linear& linear) {
  if (keep == Keep::kProducts) return Stretched(LayerNormFront{eps}, {x, weight, bias}, {linear})[0];
  return Apply(linear, at::layer_norm(x, {x.size(1)}, weight, bias, eps));
}

at::Tensor GeluLinear(Keep keep, const at::Tensor& x, const Linear& linear) {
  if (keep != Keep::kAll) return Stretched(GeluFront{}, {x}, {linear}, keep == Keep::kProducts)[0];
  return Apply(linear, at::gelu(x, "tanh"));
}

std::vector<at::Tensor> RmsNormLinears(Keep keep, const at::Tensor& x, const at::Tensor& weight, double eps,
                                       const std::vector<Linear>& linears) {
  if (keep == Keep::kProducts) return Stretched(RmsFront{eps}, {x, weight}, linears);
  return Products(RmsNorm(x, weight, eps), linears);
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

at::Tensor SwiGluLinear(Keep keep, const at::Tensor& gate, const at::Tensor& up, const Linear& linear) {
  if (keep != Keep::kAll) return Stretched(SwiGluFront{}, {gate, up}, {linear}, keep == Keep::kProducts)[0];
  return Apply(linear, SwiGlu(gate, up));
}

}  // namespace trainyard::model
