// The pieces of a transformer that plain autograd would do with more memory or more passes: RMSNorm, rotary positions,
// SwiGLU, and the head with its loss. Each keeps only its inputs (the loss: its gradients) for backward.
// Thread-safety: functions of their arguments.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::model {

// x / sqrt(mean(x^2, last) + eps) * weight (Zhang and Sennrich, 2019). x: [n, h]; statistics in fp32 at least.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Rotary position embedding, rotate-half form (Su et al., 2021; halves as in Hugging Face's Llama).
// x: [b, s, heads, d]; cos, sin: [s, 1, d/2] or [b, s, 1, d/2] in x's type.
at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// silu(gate) * up (Shazeer, "GLU variants", 2020).
at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up);

// Sum over i of weights[i] * cross-entropy(softmax(x[i] head^T), targets[i]) in nats; fp64 scalar.
// x: [n, h], head: [V, h], targets: [n] int64, weights: [n] or undefined (all one). Works through chunks of tokens and
// makes the gradients in forward, so that no [n, V] tensor beyond a chunk exists.
at::Tensor HeadLossSum(const at::Tensor& x, const at::Tensor& head, const at::Tensor& targets,
                       const at::Tensor& weights);

}  // namespace trainyard::model
