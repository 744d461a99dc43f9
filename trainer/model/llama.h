// Llama-style decoder (Touvron et al., 2023) in plain ATen: RMSNorm, rotate-half RoPE, grouped-query causal attention,
// SwiGLU, tied or untied embeddings. Parameter names and orientation are Hugging Face's. Unit 0 is the root (embedding,
// final norm, head); unit 1+l is block l. Thread-safety: one rank's thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"

namespace trainyard::model {

struct LlamaConfig {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, max_positions = 0;
  bool tied = false;
  double rope_theta = 10000.0, norm_eps = 1e-5;
};

std::vector<engine::UnitSpec> LlamaUnits(const LlamaConfig& config);

class Llama {
 public:
  // `host` (an engine::Engine in training) was built from LlamaUnits(config) and must outlive the model.
  Llama(const LlamaConfig& config, engine::ParameterHost& host);

  // tokens: [b, s+1] int64, 1 <= s <= max_positions. Sum over all b*s targets of the cross-entropy in nats; fp64
  // scalar.
  at::Tensor LossSum(const at::Tensor& tokens);
  // weights: [b], row i counts weights[i] times (0: padding micro-batch, whose gradients are zeros); or [b, s], for
  // each target its own (0 behind the end of a document).
  at::Tensor LossSum(const at::Tensor& tokens, const at::Tensor& weights);
  // tokens: [b, s] int64 -> [b, s, vocab] in the compute type.
  at::Tensor Logits(const at::Tensor& tokens);

 private:
  at::Tensor Loss(const at::Tensor& tokens, const at::Tensor& weights);
  at::Tensor Hidden(const at::Tensor& tokens);  // embedding and blocks; the root is gathered when it returns
  at::Tensor Block(int64_t layer, const at::Tensor& x);
  void EnsureRope(int64_t length, const at::Tensor& like);

  LlamaConfig config_;
  engine::ParameterHost& host_;
  at::Tensor cos_, sin_;  // [positions, 1, head_dim/2]
};

}  // namespace trainyard::model
