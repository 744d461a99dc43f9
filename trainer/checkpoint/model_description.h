// What a model computes, as far as its weights alone do not say it: the families that our trainer knows, with their
// options. No LibTorch and no JSON, so that whoever builds, sizes or writes a model can share it.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::checkpoint {

// LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GPT2LMHeadModel. The first four are one
// decoder with options; the name decides what config.json is written.
enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3, kGpt2 };

enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

// How rotary positions are stretched beyond the length of pretraining. What a type does not use keeps its default.
// Formulas: trainer/model/rope.h.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  int64_t original_max_positions = 0;    // of Llama 3 and YaRN: the length of pretraining
  double low_freq_factor = 0;            // of Llama 3
  double high_freq_factor = 0;           // of Llama 3
  double beta_fast = 32, beta_slow = 1;  // of YaRN
  bool truncate = true;                  // of YaRN: the ramp begins and ends at whole dimensions
  double attention_factor = 1;           // of YaRN: sines and cosines are multiplied by it

  bool operator==(const RopeScaling&) const = default;
};

struct ModelDescription {
  ModelFamily family = ModelFamily::kLlama;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, max_positions = 0;
  bool tied = false;
  double rope_theta = 10000.0;  // not of GPT-2
  double norm_epsilon = 1e-5;
  // Of GPT-2 what follows keeps its defaults.
  int64_t head_dim = 0;      // 0: hidden / heads
  bool qkv_bias = false;     // queries, keys and values (Qwen2)
  bool output_bias = false;  // attention's output as well (Llama and Qwen3 with attention_bias)
  bool qk_norm = false;      // RMSNorm over each head of queries and of keys, before the positions (Qwen3)
  // Sliding window: a token sees itself and the window - 1 tokens before it, in these layers; 0: all before it.
  int64_t window = 0;
  std::vector<int64_t> windowed_layers;  // rising; empty without a window
  RopeScaling rope;

  int64_t HeadDim() const { return head_dim != 0 ? head_dim : heads != 0 ? hidden / heads : 0; }
  bool operator==(const ModelDescription&) const = default;
};

}  // namespace trainyard::checkpoint
