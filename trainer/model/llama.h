// Llama-style decoder (Touvron et al., 2023) in plain ATen: RMSNorm, rotate-half RoPE, grouped-query causal attention,
// SwiGLU, tied or untied embeddings; with the options of its relatives Mistral, Qwen2 and Qwen3. Parameter names and
// orientation are Hugging Face's. Thread-safety: as Model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/checkpoint/model_description.h"
#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/model/model.h"
#include "trainer/model/rope.h"

namespace trainyard::model {

struct LlamaConfig {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, max_positions = 0;
  bool tied = false;
  double rope_theta = 10000.0, norm_eps = 1e-5;
  // As in checkpoint::ModelDescription.
  int64_t head_dim = 0;  // 0: hidden / heads
  bool qkv_bias = false, output_bias = false, qk_norm = false;
  int64_t window = 0;
  std::vector<int64_t> windowed_layers;
  checkpoint::RopeScaling rope;

  int64_t HeadDim() const { return head_dim != 0 ? head_dim : hidden / heads; }
};

// Error: std::invalid_argument for impossible sizes.
std::vector<engine::UnitSpec> LlamaUnits(const LlamaConfig& config);

class Llama final : public Model {
 public:
  // `host` was built from LlamaUnits(config), with the adapters where there are some, and must outlive the model.
  Llama(const LlamaConfig& config, engine::ParameterHost& host,
        ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone,
        const std::optional<Adapter>& adapter = std::nullopt);

 private:
  at::Tensor Embed(const at::Tensor& tokens, const Pass& pass) override;
  at::Tensor Block(int64_t layer, const at::Tensor& x, const Pass& pass) override;
  at::Tensor FinalNorm(const at::Tensor& x) override;
  const at::Tensor& Head() const override;
  void EnsureRope(const at::Tensor& like);

  const LlamaConfig config_;
  std::vector<int64_t> windows_;  // of each layer; 0: none
  RopeTable rope_;
};

}  // namespace trainyard::model
