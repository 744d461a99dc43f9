// config.json of the families that are built like Llama: Llama, Mistral, Qwen2, Qwen3, Phi-3, Gemma. Defaults are those
// of the transformers library (models/*/configuration_*.py).
#include "operator/sizing/config_fields.h"

namespace trainyard::sizing {
namespace {

// Gemma writes no tie_word_embeddings since its heads are always tied.
constexpr bool kTied = true;
constexpr bool kUntied = false;

// What all of them have. `head_dim`: of the family, where the file says none; 0: hidden / heads.
ModelShape ReadCommon(ConfigFields& f, bool tied, int64_t head_dim) {
  ModelShape m;
  m.layers = f.Number("num_hidden_layers", std::nullopt, kMostLayers);
  m.hidden = f.Number("hidden_size", std::nullopt, kMostWidth);
  m.heads = f.Number("num_attention_heads", std::nullopt, kMostHeads);
  m.kv_heads = f.Number("num_key_value_heads", m.heads, kMostHeads);
  m.ffn = f.Number("intermediate_size", std::nullopt, kMostFfn);
  m.vocab = f.Number("vocab_size", std::nullopt, kMostVocab);
  m.max_positions = f.Number("max_position_embeddings", 2048, kMostVocab);
  m.tied = f.Flag("tie_word_embeddings", tied);
  int64_t own = f.Number("head_dim", 0, kMostHeadDim);
  if (own == 0) own = head_dim;
  if (own * m.heads != m.hidden) m.head_dim = own;
  return m;
}

// attention_bias of the later families: queries, keys and values, and the output as well.
void ReadAttentionBias(ConfigFields& f, ModelShape& m) {
  m.qkv_bias = f.Flag("attention_bias", false);
  m.output_bias = m.qkv_bias;
}

}  // namespace

ModelShape ReadLlama(ConfigFields& f) {
  ModelShape m = ReadCommon(f, kUntied, 0);
  ReadAttentionBias(f, m);
  m.mlp_bias = f.Flag("mlp_bias", false);
  return m;
}

ModelShape ReadMistral(ConfigFields& f) { return ReadCommon(f, kUntied, 0); }

ModelShape ReadQwen2(ConfigFields& f) {
  ModelShape m = ReadCommon(f, kUntied, 0);
  m.qkv_bias = true;
  return m;
}

ModelShape ReadQwen3(ConfigFields& f) { return ReadQwen3(f, 128); }

ModelShape ReadQwen3(ConfigFields& f, int64_t head_dim) {
  ModelShape m = ReadCommon(f, kUntied, head_dim);
  ReadAttentionBias(f, m);
  m.qk_norm = true;
  return m;
}

ModelShape ReadPhi3(ConfigFields& f) {
  ModelShape m = ReadCommon(f, kUntied, 0);
  m.fused_projections = true;
  return m;
}

ModelShape ReadGemma(ConfigFields& f) {
  ModelShape m = ReadCommon(f, kTied, 256);
  ReadAttentionBias(f, m);
  return m;
}

ModelShape ReadGemma2(ConfigFields& f) {
  ModelShape m = ReadGemma(f);
  m.norms = 4;
  return m;
}

ModelShape ReadGemma3(ConfigFields& f) {
  ModelShape m = ReadGemma2(f);
  m.qk_norm = true;
  return m;
}

}  // namespace trainyard::sizing
