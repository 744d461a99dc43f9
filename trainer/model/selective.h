// The stretches of a transformer block between linear layers, each up to and with those or the attention that follows.
// With Keep::kProducts they keep for backward what matrix products gave (and the row statistics of norms and attention,
// a few numbers per token) and compute norms, rotary positions and activations again: selective activation
// checkpointing. With Keep::kAll they are the plain operations, which also keep what those gave. Keep::kAllButValue is
// for a block that runs again: gradients as with kAll, but what an MLP gives, of which backward needs nothing, is zeros
// instead of its last product. Values and gradients have the same bits whatever is kept.
// Shapes: n tokens, h hidden, f FFN width. Thread-safety: functions of their arguments.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "trainer/model/kv_cache.h"
#include "trainer/model/linear.h"

namespace trainyard::model {

enum class Keep { kAll, kProducts, kAllButValue };

// Each linear layer of RmsNorm(x). x: [n, h], weight: [h] of the norm.
std::vector<at::Tensor> RmsNormLinears(Keep keep, const at::Tensor& x, const at::Tensor& weight, double eps,
                                       const std::vector<Linear>& linears);

// What of attention differs between models.
struct AttentionOptions {
  // RMSNorm over each head before it is rotated (Henry et al., "Query-key normalization", 2020). [d]; undefined: none.
  at::Tensor query_norm, key_norm;
  double norm_eps = 0;
  // How many tokens one sees, itself among them (Jiang et al., "Mistral 7B", 2023, section 2); 0: all before it.
  int64_t window = 0;
  // What came before the tokens: theirs are added as `layer`'s, and they see all of them. No graph, no lengths.
  KeyValueCache* cache = nullptr;
  int64_t layer = 0;
};

// Causal attention over rotated queries and keys; key and value heads may be fewer (grouped queries).
// q: [b, s, heads, d], k, v: [b, s, kv heads, d]; cos, sin: [s, 1, d/2] or [b, s, 1, d/2] in their type -> [b*s,
// heads*d]. lengths: as Documents has them.
at::Tensor RopeAttention(Keep keep, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& cos, const at::Tensor& sin, at::IntArrayRef lengths = {},
                         const AttentionOptions& options = {});

// The linear layer of silu(gate) * up. gate, up: [n, f].
at::Tensor SwiGluLinear(Keep keep, const at::Tensor& gate, const at::Tensor& up, const Linear& linear);

// Causal attention as it is: it keeps its operands and its output. q: [b, s, heads, d], k, v: [b, t, kv heads, d] ->
// [b*s, heads*d]; the queries are those of the last s of t tokens. With lengths, of which the tokens are all (s = t),
// one call for each: neither memory nor time for pairs of tokens of different documents. With a window, one call for
// each stretch of about its length, over the keys that the stretch sees.
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef lengths = {},
                           int64_t window = 0);

// The linear layer of LayerNorm(x) (Ba et al., 2016). x: [n, h], weight, bias: [h] of the norm.
at::Tensor LayerNormLinear(Keep keep, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           const Linear& linear);

// The linear layer of gelu(x) with the tanh form of GELU (Hendrycks and Gimpel, 2016). x: [n, f].
at::Tensor GeluLinear(Keep keep, const at::Tensor& x, const Linear& linear);

}  // namespace trainyard::model
