// The two families of models as Hugging Face's transformers knows them: config.json, and the names and shapes of their
// tensors. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

enum class ModelFamily { kLlama, kGpt2 };  // LlamaForCausalLM, GPT2LMHeadModel

struct ModelDescription {
  ModelFamily family = ModelFamily::kLlama;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, max_positions = 0;
  bool tied = false;
  double rope_theta = 10000.0;  // of Llama
  double norm_epsilon = 1e-5;

  bool operator==(const ModelDescription&) const = default;
};

// Every tensor of the model under its Hugging Face name, in the order of transformers' state_dict, as F32 of the group
// "model"; a tied head is not listed.
std::vector<TensorInfo> TensorsOf(const ModelDescription& model);

// What a checkpoint of ours holds, from its train state and its tensors, which must be exactly those of TensorsOf.
// Errors: kFailedPrecondition when the train state does not say it, or tensors are missing, surplus or of other shapes.
Result<ModelDescription> DescribeModel(const Reader& reader);

// config.json for transformers. `dtype` is safetensors' name of what the files hold.
nlohmann::ordered_json ConfigJson(const ModelDescription& model, const std::string& dtype);
// The inverse, for what our trainer computes exactly alike. Error: kInvalidArgument for another architecture, for
// impossible sizes, and for anything that would change what the model computes (scaled RoPE, biases, another
// activation), naming the key.
Result<ModelDescription> ParseConfigJson(const nlohmann::json& config);

// The member "model" of our train_state.json, by which a job knows whether a checkpoint is of its model.
nlohmann::ordered_json ModelIdentity(const ModelDescription& model);

}  // namespace trainyard::checkpoint
