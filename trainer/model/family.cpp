#include "trainer/model/family.h"

#include <utility>

namespace trainyard::model {
namespace {

std::vector<engine::UnitSpec> UnitsOf(const LlamaConfig& config) { return LlamaUnits(config); }
std::vector<engine::UnitSpec> UnitsOf(const Gpt2Config& config) { return Gpt2Units(config); }

template <typename... Args>
std::unique_ptr<Model> MakeOf(const LlamaConfig& config, Args&&... args) {
  return std::make_unique<Llama>(config, std::forward<Args>(args)...);
}
template <typename... Args>
std::unique_ptr<Model> MakeOf(const Gpt2Config& config, Args&&... args) {
  return std::make_unique<Gpt2>(config, std::forward<Args>(args)...);
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

std::vector<engine::UnitSpec> Units(const Config& config, const std::optional<Adapter>& adapter) {
  std::vector<engine::UnitSpec> units = std::visit([](const auto& c) { return UnitsOf(c); }, config);
  if (adapter) AddAdapters(*adapter, /*input_first=*/std::holds_alternative<Gpt2Config>(config), units);
  return units;
}

std::unique_ptr<Model> Make(const Config& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing,
                            const std::optional<Adapter>& adapter) {
  return std::visit([&](const auto& c) { return MakeOf(c, host, checkpointing, adapter); }, config);
}

}  // namespace trainyard::model
