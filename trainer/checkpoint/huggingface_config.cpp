// ConfigJson and ParseConfigJson of huggingface.h. Keys and defaults are those of transformers' LlamaConfig and
// GPT2Config.
#include <optional>

#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMostLayers = 10'000;

// Reads members and remembers the first problem.
class Fields {
 public:
  explicit Fields(const json& config) : config_(config) {}

  // The default bound is far above any model and far below what could overflow a product of two.
  int64_t Size(const char* key, std::optional<int64_t> otherwise = std::nullopt, int64_t most = 1'000'000'000) {
    const json* value = Find(key);
    if (value == nullptr) {
      if (!otherwise) Complain(key, "is missing");
      return otherwise.value_or(1);
    }
    const bool fits = value->is_number_integer() && *value > 0 && *value <= most;
    if (!fits) Complain(key, value->dump() + " is not a size");
    return fits ? value->get<int64_t>() : 1;
  }
  double Number(const char* key, double otherwise) {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() > 0)) Complain(key, value->dump() + " is not a positive number");
    return value->is_number() ? value->get<double>() : otherwise;
  }
  bool Flag(const char* key, bool otherwise) {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) Complain(key, value->dump() + " is not true or false");
    return value->is_boolean() ? value->get<bool>() : otherwise;
  }
  // A key that our trainer knows with these values only; the first is the default of transformers.
  void Only(const char* key, const std::vector<json>& allowed) {
    const json* value = Find(key);
    for (const json& one : allowed) {
      if (value == nullptr || *value == one) return;
    }
    Complain(key, value->dump() + " is not what our trainer computes (" + allowed.front().dump() + ")");
  }
  // A key that must be absent or null.
  void Absent(const char* key) {
    if (const json* value = Find(key)) Complain(key, value->dump() + " is not what our trainer computes (null)");
  }
  // Where transformers 5 keeps what rope_theta and rope_scaling were.
  void Rope(double& theta) {
    const json* value = Find("rope_parameters");
    if (value == nullptr) return;
    if (!value->is_object() || value->value("rope_type", json("default")) != "default") {
      return Complain("rope_parameters", value->dump() + " is not what our trainer computes (rope_type default)");
    }
    theta = Fields(*value).Number("rope_theta", theta);
  }
  void Complain(const std::string& key, const std::string& what) {
    if (problem.empty()) problem = "config.json: " + key + ": " + what;
  }
  std::string problem;

 private:
  const json* Find(const char* key) const {  // null counts as absent, as in transformers
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  const json& config_;
};

ModelDescription ParseLlama(Fields& f) {
  ModelDescription m;
  m.layers = f.Size("num_hidden_layers", std::nullopt, kMostLayers);
  m.hidden = f.Size("hidden_size");
  m.heads = f.Size("num_attention_heads");
  m.kv_heads = f.Size("num_key_value_heads", m.heads);
  m.ffn = f.Size("intermediate_size");
  m.vocab = f.Size("vocab_size");
  m.max_positions = f.Size("max_position_embeddings", 2048);
  m.tied = f.Flag("tie_word_embeddings", false);
  m.rope_theta = f.Number("rope_theta", 10000.0);
  m.norm_epsilon = f.Number("rms_norm_eps", 1e-6);
  f.Only("hidden_act", {"silu", "swish"});
  f.Only("attention_bias", {false});
  f.Only("mlp_bias", {false});
  f.Only("head_dim", {m.hidden / m.heads});
  f.Absent("rope_scaling");
  f.Rope(m.rope_theta);
  if (m.hidden % m.heads != 0) f.Complain("num_attention_heads", "it does not divide hidden_size");
  if (m.heads % m.kv_heads != 0) f.Complain("num_key_value_heads", "it does not divide num_attention_heads");
  return m;
}

ModelDescription ParseGpt2(Fields& f) {
  ModelDescription m;
  m.family = ModelFamily::kGpt2;
  m.layers = f.Size("n_layer", std::nullopt, kMostLayers);
  m.hidden = f.Size("n_embd");
  m.heads = m.kv_heads = f.Size("n_head");
  m.ffn = f.Size("n_inner", 4 * m.hidden);
  m.vocab = f.Size("vocab_size");
  m.max_positions = f.Size("n_positions", 1024);
  m.tied = f.Flag("tie_word_embeddings", true);
  m.norm_epsilon = f.Number("layer_norm_epsilon", 1e-5);
  f.Only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  f.Only("scale_attn_weights", {true});
  f.Only("scale_attn_by_inverse_layer_idx", {false});
  f.Only("add_cross_attention", {false});
  if (m.hidden % m.heads != 0) f.Complain("n_head", "it does not divide n_embd");
  return m;
}

}  // namespace

ordered_json ConfigJson(const ModelDescription& m, const std::string& dtype) {
  ordered_json config;
  const bool llama = m.family == ModelFamily::kLlama;
  config["architectures"] = {llama ? "LlamaForCausalLM" : "GPT2LMHeadModel"};
  config["model_type"] = llama ? "llama" : "gpt2";
  if (llama) {
    config.update(ordered_json{{"hidden_size", m.hidden},
                               {"intermediate_size", m.ffn},
                               {"num_hidden_layers", m.layers},
                               {"num_attention_heads", m.heads},
                               {"num_key_value_heads", m.kv_heads},
                               {"head_dim", m.hidden / m.heads},
                               {"hidden_act", "silu"},
                               {"rms_norm_eps", m.norm_epsilon},
                               {"rope_theta", m.rope_theta},
                               {"attention_bias", false},
                               {"mlp_bias", false}});
    if (m.max_positions > 0) config["max_position_embeddings"] = m.max_positions;
  } else {
    config.update(ordered_json{{"n_embd", m.hidden},
                               {"n_inner", m.ffn},
                               {"n_layer", m.layers},
                               {"n_head", m.heads},
                               {"n_positions", m.max_positions},
                               {"activation_function", "gelu_new"},
                               {"layer_norm_epsilon", m.norm_epsilon},
                               {"resid_pdrop", 0.0},
                               {"embd_pdrop", 0.0},
                               {"attn_pdrop", 0.0}});
  }
  config["vocab_size"] = m.vocab;
  config["tie_word_embeddings"] = m.tied;
  // Token ids are the tokenizer's, which no checkpoint of ours knows; transformers' defaults would be a guess.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["torch_dtype"] = dtype == "BF16" ? "bfloat16" : dtype == "F64" ? "float64" : "float32";
  return config;
}

Result<ModelDescription> ParseConfigJson(const json& config) {
  const auto bad = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (!config.is_object()) return bad("config.json: it is not a JSON object");
  std::string name;
  if (const auto list = config.find("architectures"); list != config.end() && list->is_array() && list->size() == 1) {
    if (list->front().is_string()) name = list->front().get<std::string>();
  }
  Fields fields(config);
  ModelDescription m;
  if (name == "LlamaForCausalLM") {
    m = ParseLlama(fields);
  } else if (name == "GPT2LMHeadModel") {
    m = ParseGpt2(fields);
  } else {
    return bad("config.json: architectures: only [\"LlamaForCausalLM\"] and [\"GPT2LMHeadModel\"] can be imported");
  }
  if (!fields.problem.empty()) return bad(fields.problem);
  return m;
}

}  // namespace trainyard::checkpoint
