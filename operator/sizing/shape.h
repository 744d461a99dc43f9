// What a model looks like, as far as its memory depends on it, and where that comes from: a bare number such as 7B
// (mapped to a reference shape), an architecture of ours, or a Hugging Face config.json. Thread-safety: pure functions
// on plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::sizing {

// How a transformer block is built, and what its tensors are called. kLlama: RMSNorm, grouped-query attention, a gated
// MLP or experts (Llama, Mistral, Qwen, Gemma, Phi-3, Mixtral). kGpt2 and kGptNeox: LayerNorm, biases, a plain MLP with
// GELU; GPT-2 has learned positions, GPT-NeoX adds attention and MLP to the same input.
enum class BlockKind { kLlama, kGpt2, kGptNeox };

struct ModelShape {
  std::string name;        // for people: "Llama 2 7B", "LlamaForCausalLM (config.json)"
  int64_t parameters = 0;  // P of every formula: as stated for a bare number, else the exact count, experts included
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn = 0;  // width of the MLP; of the layers without experts where there are experts
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool tied = false;

  BlockKind block = BlockKind::kLlama;
  std::optional<api::Family> family;  // as a TrainingJob calls it; nothing: it has no name for it
  int64_t head_dim = 0;               // 0: hidden / heads
  bool gated = true;                  // the MLP has three matrices (SwiGLU, GeGLU); else two
  bool qkv_bias = false;              // Qwen2, GPT-2, GPT-NeoX, and Llama with attention_bias
  bool output_bias = false;           // GPT-2, GPT-NeoX, and Llama with attention_bias: o_proj too
  bool mlp_bias = false;              // GPT-2, GPT-NeoX, and Llama with mlp_bias
  bool qk_norm = false;               // a norm over each head of queries and of keys (Qwen3, Gemma 3)
  int64_t norms = 2;                  // norms of width `hidden` per block; 4 in Gemma 2 and 3
  bool fused_projections = false;     // queries, keys and values are one matrix, gate and up another (Phi-3)

  // Mixture of experts: a router sends each token of a sparse layer to some of its experts.
  int64_t experts = 0;            // per sparse layer; 0: a dense model
  int64_t experts_per_token = 0;  // that a token is sent to
  int64_t expert_ffn = 0;         // width of one expert
  int64_t shared_expert_ffn = 0;  // of an expert that sees every token, behind a gate of its own; 0: none
  int64_t dense_layers = 0;       // layers with an MLP of `ffn` instead of experts
  bool mixtral_names = false;     // experts.E.w1 instead of experts.E.gate_proj

  std::string assumption;  // what was assumed, in one sentence; empty when the shape is the user's own

  int64_t HeadDim() const { return head_dim != 0 ? head_dim : (heads != 0 ? hidden / heads : 0); }
  int64_t AttentionWidth() const { return heads * HeadDim(); }  // of queries and of attention's output
  int64_t KvWidth() const { return kv_heads * HeadDim(); }
  int64_t SparseLayers() const { return experts > 0 ? layers - dense_layers : 0; }
  // Width of the MLP that one token passes, experts added up; in a model with both kinds of layers the wider one's.
  int64_t TokenFfn() const;
};

// One tensor of the model (Hugging Face name and orientation), `copies` times: once per layer for those of a block,
// whose name then has N in place of the layer, and once per expert, with E in place of the expert.
struct TensorCount {
  std::string name;
  std::vector<int64_t> shape;
  int64_t copies = 1;
  bool in_block = false;
  int64_t Elements() const;  // of all copies
};

// Every tensor that holds parameters, in the order of the forward pass. A tied head is not listed twice.
std::vector<TensorCount> Tensors(const ModelShape& shape);
int64_t CountParameters(const ModelShape& shape);  // P, exact
// What one token meets: P less the experts it is not sent to. P for a dense model; of a bare number, as stated.
int64_t ActiveParameters(const ModelShape& shape);
int64_t BlockParameters(const ModelShape& shape);  // P_b, one block with all its experts; the largest where they differ
int64_t RootParameters(
    const ModelShape& shape);  // P_r, what is outside the blocks: embeddings, positions, last norm, head

// `shape` with its exact count. Errors: kInvalidArgument for heads that do not divide, an MLP without width, more
// experts per token than there are, and above 100T parameters.
Result<ModelShape> Counted(ModelShape shape);

// The reference shape for a bare number: one of the published models within 12 % of it, else an interpolated Llama-like
// shape. `parameters` stays the number as stated. Errors: kInvalidArgument below 1,000 or above 100T.
Result<ModelShape> ShapeFromCount(int64_t parameters);

// Zeros mean the defaults of the API (kvHeads = attentionHeads, ffnSize = 8/3 of hiddenSize rounded up to 16).
// Errors: kInvalidArgument, naming the field of spec.model.architecture.
Result<ModelShape> ShapeFromArchitecture(const api::Architecture& architecture);

// A Hugging Face config.json of Llama, Mistral, Qwen2, Qwen3, Gemma (1, 2 and the text models of 3), Phi-3, GPT-2,
// GPT-NeoX, Mixtral, Qwen2-MoE or Qwen3-MoE. What a file leaves out has the default of the transformers library where
// the family has one that follows from the rest; a missing size is an error. Keys that say nothing about the count
// (dropout, token ids, data types ...) are passed over; keys that are not known at all are named in `assumption`.
// Errors: kInvalidArgument for another architecture, a missing or wrong field, numbers that do not go together.
Result<ModelShape> ShapeFromConfigJson(const nlohmann::json& config);

// The shape that a job asks for: its architecture if it has one, else its number of parameters.
Result<ModelShape> ShapeOf(const api::TrainingJob& job);

}  // namespace trainyard::sizing
