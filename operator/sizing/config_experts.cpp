// config.json of mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE. They are their dense relatives with experts in
// place of the MLP, in all layers or in some. Defaults are those of the transformers library.
#include "operator/sizing/config_fields.h"

namespace trainyard::sizing {
namespace {

// mlp_only_layers names layers that keep a plain MLP; of the others every decoder_sparse_step-th has experts.
int64_t DenseLayers(ConfigFields& f, int64_t layers) {
  const std::set<int64_t> plain = f.Numbers("mlp_only_layers", kMostLayers);
  const int64_t step = f.Number("decoder_sparse_step", 1, kMostLayers);
  int64_t dense = 0;
  for (int64_t layer = 0; layer < layers; ++layer) dense += plain.contains(layer) || (layer + 1) % step != 0;
  return dense;
}

void ReadQwenExperts(ConfigFields& f, ModelShape& m) {
  m.experts = f.Number("num_experts", std::nullopt, kMostExperts);
  m.experts_per_token = f.Number("num_experts_per_tok", std::nullopt, kMostExperts);
  m.expert_ffn = f.Number("moe_intermediate_size", std::nullopt, kMostFfn);
  m.dense_layers = DenseLayers(f, m.layers);
}

}  // namespace

ModelShape ReadMixtral(ConfigFields& f) {
  ModelShape m = ReadMistral(f);
  m.experts = f.Number("num_local_experts", std::nullopt, kMostExperts);
  m.experts_per_token = f.Number("num_experts_per_tok", std::nullopt, kMostExperts);
  m.expert_ffn = m.ffn;
  m.mixtral_names = true;
  return m;
}

ModelShape ReadQwen2Moe(ConfigFields& f) {
  ModelShape m = ReadQwen2(f);
  m.qkv_bias = f.Flag("qkv_bias", true);
  ReadQwenExperts(f, m);
  m.shared_expert_ffn = f.Number("shared_expert_intermediate_size", std::nullopt, kMostFfn);
  return m;
}

ModelShape ReadQwen3Moe(ConfigFields& f) {
  ModelShape m = ReadQwen3(f, 0);
  ReadQwenExperts(f, m);
  return m;
}

}  // namespace trainyard::sizing
