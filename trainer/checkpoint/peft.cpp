#include "trainer/checkpoint/peft.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <regex>
#include <set>

#include "trainer/checkpoint/config_fields.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMostRank = 65'536;

// What the tensors say better, how the adapter was made, or where it came from.
const std::set<std::string>& Harmless() {
  static const std::set<std::string> keys = {
      "auto_mapping",   "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
      "inference_mode", "megatron_core",           "peft_version", "qalora_group_size",   "revision",
      "runtime_config", "target_modules"};
  return keys;
}

bool Off(const json& value) {
  return value.is_null() || value == false || ((value.is_structured() || value.is_string()) && value.empty());
}

// A whole number without a point, as PEFT writes alpha.
json Number(double value) {
  const bool whole = std::trunc(value) == value && std::abs(value) < 1e15;
  return whole ? json(static_cast<int64_t>(value)) : json(value);
}

constexpr size_t kMostPattern = 4096;

std::optional<std::regex> Compiled(const std::string& pattern) {
  if (pattern.size() > kMostPattern) return std::nullopt;
  try {
    // Without backtracking, which takes forever with some patterns.
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

bool ListNames(const json& list, const std::string& matrix) {
  for (const json& one : list) {
    const std::string& end = one.get_ref<const std::string&>();
    if (matrix == end || matrix.ends_with("." + end)) return true;
  }
  return false;
}

}  // namespace

nlohmann::ordered_json PeftConfigJson(const AdapterState& state) {
  const AdapterDescription& adapter = state.adapter;
  const bool known = state.base && !state.base->directory.empty();
  return {{"alpha_pattern", json::object()},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", known ? json(state.base->directory) : json()},
          {"bias", "none"},
          {"fan_in_fan_out", state.model.family == ModelFamily::kGpt2},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"lora_alpha", Number(adapter.alpha)},
          {"lora_dropout", adapter.dropout},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", adapter.rank},
          {"rank_pattern", json::object()},
          {"revision", nullptr},
          {"target_modules", adapter.targets},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", false},
          {"use_rslora", false}};
}

Result<AdapterDescription> ParsePeftConfig(const json& config, const std::string& name) {
  if (!config.is_object()) return Fail(ErrorCode::kInvalidArgument, name + " is not a JSON object");
  json on = json::object();
  for (const auto& [key, value] : config.items()) {
    if (!Off(value)) on[key] = value;
  }
  ConfigFields fields(on, name);
  fields.Only("peft_type", {"LORA"});
  fields.Only("task_type", {"CAUSAL_LM"});
  fields.Only("bias", {"none"});
  // PiSSA, OLoRA, CorDA and LoftQ change the base as well.
  fields.Only("init_lora_weights", {true, "gaussian", "orthogonal", "eva"});
  for (const char* key : {"use_dora", "use_rslora", "use_qalora", "lora_bias"}) fields.Only(key, {false});
  for (const char* key : {"modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication",
                          "alora_invocation_tokens", "arrow_config", "megatron_config", "layers_to_transform",
                          "layers_pattern", "exclude_modules"}) {
    fields.Only(key, {nullptr});
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "loftq_config"}) fields.Only(key, {json::object()});
  fields.Flag("fan_in_fan_out", false);  // whichever it is: PEFT goes by the layer
  AdapterDescription out;
  out.rank = fields.Size("r", std::nullopt, kMostRank);
  out.alpha = fields.Number("lora_alpha");
  if (const json* dropout = fields.Find("lora_dropout"); dropout != nullptr) {
    const bool share = dropout->is_number() && *dropout >= 0 && *dropout < 1;
    if (!share) fields.Complain("lora_dropout", "is not a share below 1");
    out.dropout = share ? dropout->get<double>() : 0;
  }
  fields.Finish(Harmless());
  if (!fields.problem().empty()) return Fail(ErrorCode::kInvalidArgument, fields.problem());
  return out;
}

Status CheckPeftTargets(const json& config, const std::string& name, const ModelDescription& model,
                        const AdapterDescription& adapter) {
  const json targets = config.value("target_modules", json());
  if (Off(targets)) return {};
  const auto refuse = [&](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, name + ": target_modules: " + what);
  };
  const bool list = targets.is_array() && std::all_of(targets.begin(), targets.end(), std::mem_fn(&json::is_string));
  if (!list && !targets.is_string()) return refuse("is neither a list of names nor a text");
  const bool all = targets == "all-linear";
  const std::optional<std::regex> pattern = list || all ? std::nullopt : Compiled(targets.get<std::string>());
  std::set<std::string> adapted;
  for (const BlockMatrix& matrix : AdaptedMatrices(model, adapter)) adapted.insert(matrix.name);
  for (const BlockMatrix& matrix : BlockMatrices(model)) {
    const bool has = adapted.contains(matrix.name);
    if (has && list && !ListNames(targets, matrix.name))
      return refuse("does not name " + matrix.name + ", which has tensors");
    if (has && pattern && !std::regex_match(matrix.name, *pattern)) {
      return refuse("does not match " + matrix.name + ", which has tensors");
    }
    if (!has && (all || (list && ListNames(targets, matrix.name)))) {
      return refuse("names " + matrix.name + ", which has no tensors");
    }
  }
  const std::string first = TensorsOf(model).front().name, embedding = first.substr(0, first.rfind('.'));
  if (list && (ListNames(targets, "lm_head") || ListNames(targets, embedding))) {
    return refuse("names the head or the embedding, and our trainer adapts matrices of the blocks");
  }
  return {};
}

}  // namespace trainyard::checkpoint
