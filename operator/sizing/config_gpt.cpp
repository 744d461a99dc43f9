// config.json of GPT-2 and GPT-NeoX (Pythia), with the defaults of the transformers library.
#include "operator/sizing/config_fields.h"

namespace trainyard::sizing {

ModelShape ReadGpt2(ConfigFields& f) {
  ModelShape m;
  m.block = BlockKind::kGpt2;
  m.layers = f.Number("n_layer", std::nullopt, kMostLayers);
  m.hidden = f.Number("n_embd", std::nullopt, kMostWidth);
  m.heads = f.Number("n_head", std::nullopt, kMostHeads);
  m.kv_heads = m.heads;
  m.ffn = f.Number("n_inner", 4 * m.hidden, kMostFfn);
  m.vocab = f.Number("vocab_size", std::nullopt, kMostVocab);
  m.max_positions = f.Number("n_positions", 1024, kMostVocab);
  m.tied = f.Flag("tie_word_embeddings", true);
  m.gated = false;
  m.qkv_bias = m.output_bias = m.mlp_bias = true;
  if (f.Flag("add_cross_attention", false)) f.Problem("add_cross_attention: a model with an encoder is not known here");
  return m;
}

ModelShape ReadGptNeox(ConfigFields& f) {
  ModelShape m;
  m.block = BlockKind::kGptNeox;
  m.layers = f.Number("num_hidden_layers", std::nullopt, kMostLayers);
  m.hidden = f.Number("hidden_size", std::nullopt, kMostWidth);
  m.heads = f.Number("num_attention_heads", std::nullopt, kMostHeads);
  m.kv_heads = m.heads;
  m.ffn = f.Number("intermediate_size", std::nullopt, kMostFfn);
  m.vocab = f.Number("vocab_size", std::nullopt, kMostVocab);
  m.max_positions = f.Number("max_position_embeddings", 2048, kMostVocab);
  m.tied = f.Flag("tie_word_embeddings", false);
  m.gated = false;
  m.mlp_bias = true;
  m.qkv_bias = m.output_bias = f.Flag("attention_bias", true);
  return m;
}

}  // namespace trainyard::sizing
