// The layout of Hugging Face's PEFT for adapters: adapter_config.json, and adapter_model.safetensors with the tensors
// under "base_model.model." and our names. Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "trainer/checkpoint/adapter.h"

namespace trainyard::checkpoint {

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

// adapter_config.json of an adapter of such a model.
nlohmann::ordered_json PeftConfigJson(const AdapterState& state);

// Rank, alpha and dropout of one; `name` stands before the keys in messages. The targets are those of the tensors, of
// which target_modules may be a pattern. Error: kInvalidArgument for another method than LoRA, for whatever changes
// what is computed and our trainer does not do, and for keys that nobody here knows unless they are off (null, false or
// empty). The key is named.
Result<AdapterDescription> ParsePeftConfig(const nlohmann::json& config, const std::string& name);

// That target_modules means the matrices that have tensors, the targets of `adapter`, as PEFT reads it: a list has a
// name or its end for each of them and for no other matrix, a regular expression matches each as a whole, "all-linear"
// is all of them. Without the key, or with an expression of Python that is none in C++, the tensors alone say it.
// Error: kInvalidArgument.
Status CheckPeftTargets(const nlohmann::json& config, const std::string& name, const ModelDescription& model,
                        const AdapterDescription& adapter);

}  // namespace trainyard::checkpoint
