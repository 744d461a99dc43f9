#include "operator/sizing/config_fields.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "operator/api/names.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

constexpr size_t kMostUnknown = 5;  // named

// Keys that say how a model is run, written or found, and nothing about the size of its tensors.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_name_or_path",
    "activation_function",
    "architectures",
    "attention_dropout",
    "attn_logit_softcapping",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "classifier_dropout",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "final_logit_softcapping",
    "hidden_act",
    "hidden_activation",
    "hidden_dropout",
    "initializer_range",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "n_ctx",
    "norm_topk_prob",
    "original_max_position_embeddings",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "query_pre_attn_scalar",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "sliding_window",
    "sliding_window_pattern",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "use_bidirectional_attention",
    "use_cache",
    "use_parallel_residual",
    "use_sliding_window",
};

// Nothing is said by it, whatever its key.
bool SaysNothing(const json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == json(false);
}

std::string Shown(const json& value) {
  return api::Printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

const json* ConfigFields::Find(const char* name) {
  read_.insert(name);
  const auto it = config_.find(name);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigFields::Number(const char* name, std::optional<int64_t> otherwise, int64_t least, int64_t most) {
  const json* value = Find(name);
  if (value == nullptr) {
    if (otherwise) return *otherwise;
    Problem(std::string(name) + " is missing");
    return 1;
  }
  // As double first: a number beyond 63 bits would come out as another one.
  if (!value->is_number_integer() || value->get<double>() < static_cast<double>(least) ||
      value->get<double>() > static_cast<double>(most)) {
    Problem(std::string(name) + " is " + Shown(*value) + ", not a whole number from " + std::to_string(least) + " to " +
            std::to_string(most));
    return 1;
  }
  return value->get<int64_t>();
}

bool ConfigFields::Flag(const char* name, bool otherwise) {
  const json* value = Find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    Problem(std::string(name) + " is " + Shown(*value) + ", not true or false");
    return otherwise;
  }
  return value->get<bool>();
}

std::set<int64_t> ConfigFields::Numbers(const char* name, int64_t most) {
  std::set<int64_t> numbers;
  const json* value = Find(name);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    Problem(std::string(name) + " is " + Shown(*value) + ", not a list");
    return numbers;
  }
  for (const json& item : *value) {
    if (!item.is_number_integer() || item.get<double>() < 0 || item.get<double>() > static_cast<double>(most)) {
      Problem(std::string(name) + " holds " + Shown(item) + ", not a whole number from 0 to " + std::to_string(most));
      return numbers;
    }
    numbers.insert(item.get<int64_t>());
  }
  return numbers;
}

std::string ConfigFields::Unknown() const {
  std::string names;
  size_t count = 0;
  for (const auto& [key, value] : config_.items()) {
    if (read_.contains(key) || SaysNothing(value)) continue;
    if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) continue;
    if (++count > kMostUnknown) continue;
    names += (names.empty() ? "" : ", ") + api::Printable(key);
  }
  if (count > kMostUnknown) names += " and " + std::to_string(count - kMostUnknown) + " more";
  return names;
}

}  // namespace trainyard::sizing
