#include "trainer/model/family.h"

namespace trainyard::model {
namespace {

std::vector<engine::UnitSpec> UnitsOf(const LlamaConfig& config) { return LlamaUnits(config); }
std::vector<engine::UnitSpec> UnitsOf(const Gpt2Config& config) { return Gpt2Units(config); }

std::unique_ptr<Model> MakeOf(const LlamaConfig& config, engine::ParameterHost& host, ActivationCheckpointing mode) {
  return std::make_unique<Llama>(config, host, mode);
}
std::unique_ptr<Model> MakeOf(const Gpt2Config& config, engine::ParameterHost& host, ActivationCheckpointing mode) {
  return std::make_unique<Gpt2>(config, host, mode);
}

}  // namespace

Config ConfigOf(const checkpoint::ModelDescription& d) {
  if (d.family == checkpoint::ModelFamily::kGpt2) {
    return Gpt2Config{.layers = d.layers,
                      .hidden = d.hidden,
                      .heads = d.heads,
                      .ffn = d.ffn,
                      .vocab = d.vocab,
                      .max_positions = d.max_positions,
                      .tied = d.tied,
                      .norm_eps = d.norm_epsilon};
  }
  return LlamaConfig{.layers = d.layers,
                     .hidden = d.hidden,
                     .heads = d.heads,
                     .kv_heads = d.kv_heads,
                     .ffn = d.ffn,
                     .vocab = d.vocab,
                     .max_positions = d.max_positions,
                     .tied = d.tied,
                     .rope_theta = d.rope_theta,
                     .norm_eps = d.norm_epsilon,
                     .head_dim = d.head_dim,
                     .qkv_bias = d.qkv_bias,
                     .output_bias = d.output_bias,
                     .qk_norm = d.qk_norm,
                     .window = d.window,
                     .windowed_layers = d.windowed_layers,
                     .rope = d.rope};
}

std::vector<engine::UnitSpec> Units(const Config& config) {
  return std::visit([](const auto& c) { return UnitsOf(c); }, config);
}

std::unique_ptr<Model> Make(const Config& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing) {
  return std::visit([&](const auto& c) { return MakeOf(c, host, checkpointing); }, config);
}

}  // namespace trainyard::model
