// What a model looks like, as far as its memory depends on it, and where that comes from: a bare number such as 7B
// (mapped to a reference shape), an architecture of ours, or a Hugging Face config.json. Thread-safety: pure functions
// on plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::sizing {

// How a transformer block is built. kLlama: RMSNorm, grouped-query attention, SwiGLU. kGpt2: LayerNorm, biases
// everywhere, GELU, learned positions.
enum class BlockKind { kLlama, kGpt2 };

struct ModelShape {
  std::string name;        // for people: "Llama 2 7B", "LlamaForCausalLM (config.json)"
  int64_t parameters = 0;  // P of every formula: as stated for a bare number, else the exact count
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool tied = false;

  BlockKind block = BlockKind::kLlama;
  int64_t head_dim = 0;      // 0: hidden / heads
  bool qkv_bias = false;     // Qwen2, and Llama with attention_bias
  bool output_bias = false;  // Llama with attention_bias: o_proj too
  bool mlp_bias = false;     // Llama with mlp_bias
  std::string assumption;    // what was assumed, in one sentence; empty when the shape is the user's own

  int64_t HeadDim() const { return head_dim != 0 ? head_dim : (heads != 0 ? hidden / heads : 0); }
};

// One tensor of the model (Hugging Face name and orientation), `copies` times: once per layer for those of a block,
// whose name then has N in place of the layer.
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
int64_t BlockParameters(const ModelShape& shape);  // P_b, one block
int64_t RootParameters(
    const ModelShape& shape);  // P_r, what is outside the blocks: embeddings, positions, last norm, head

// The reference shape for a bare number: one of the published models within 12 % of it, else an interpolated Llama-like
// shape. `parameters` stays the number as stated. Errors: kInvalidArgument below 1,000 or above 100T.
Result<ModelShape> ShapeFromCount(int64_t parameters);

// Zeros mean the defaults of the API (kvHeads = attentionHeads, ffnSize = 8/3 of hiddenSize rounded up to 16).
// Errors: kInvalidArgument, naming the field of spec.model.architecture.
Result<ModelShape> ShapeFromArchitecture(const api::Architecture& architecture);

// A Hugging Face config.json: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, GPT2LMHeadModel.
// Errors: kInvalidArgument for another architecture or a missing or wrong field.
Result<ModelShape> ShapeFromConfigJson(const nlohmann::json& config);

// The shape that a job asks for: its architecture if it has one, else its number of parameters.
Result<ModelShape> ShapeOf(const api::TrainingJob& job);

}  // namespace trainyard::sizing
