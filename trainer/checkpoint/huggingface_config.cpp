// ConfigJson of huggingface.h. Keys are those of transformers' configuration_*.py.
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::ordered_json;

struct Names {
  ModelFamily family;
  const char* name;
  const char* architecture;
  const char* model_type;
};
constexpr Names kNames[] = {{ModelFamily::kLlama, "Llama", "LlamaForCausalLM", "llama"},
                            {ModelFamily::kMistral, "Mistral", "MistralForCausalLM", "mistral"},
                            {ModelFamily::kQwen2, "Qwen2", "Qwen2ForCausalLM", "qwen2"},
                            {ModelFamily::kQwen3, "Qwen3", "Qwen3ForCausalLM", "qwen3"},
                            {ModelFamily::kGpt2, "GPT2", "GPT2LMHeadModel", "gpt2"}};

const Names& NamesOf(ModelFamily family) { return kNames[static_cast<size_t>(family)]; }

ordered_json RopeScalingJson(const RopeScaling& rope) {
  ordered_json out;
  switch (rope.type) {
    case RopeType::kDefault:
      return nullptr;
    case RopeType::kLinear:
      return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeType::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_positions}};
    case RopeType::kYarn:
      out = {{"rope_type", "yarn"},
             {"factor", rope.factor},
             {"original_max_position_embeddings", rope.original_max_positions},
             {"attention_factor", rope.attention_factor},
             {"beta_fast", rope.beta_fast},
             {"beta_slow", rope.beta_slow}};
      if (!rope.truncate) out["truncate"] = false;
      return out;
  }
  return nullptr;
}

void AddWindow(const ModelDescription& m, ordered_json& config) {
  const ordered_json window = m.window > 0 ? ordered_json(m.window) : ordered_json(nullptr);
  if (m.family == ModelFamily::kMistral) config["sliding_window"] = window;
  if (m.family != ModelFamily::kQwen2 && m.family != ModelFamily::kQwen3) return;
  config["use_sliding_window"] = m.window > 0;
  config["sliding_window"] = window;
  ordered_json types = ordered_json::array();
  for (int64_t layer = 0; layer < m.layers; ++layer) types.push_back("full_attention");
  for (const int64_t layer : m.windowed_layers) types[static_cast<size_t>(layer)] = "sliding_attention";
  config["layer_types"] = std::move(types);
}

void AddLlama(const ModelDescription& m, ordered_json& config) {
  config.update(ordered_json{{"hidden_size", m.hidden},
                             {"intermediate_size", m.ffn},
                             {"num_hidden_layers", m.layers},
                             {"num_attention_heads", m.heads},
                             {"num_key_value_heads", m.kv_heads},
                             {"head_dim", m.HeadDim()},
                             {"hidden_act", "silu"},
                             {"rms_norm_eps", m.norm_epsilon},
                             {"rope_theta", m.rope_theta}});
  if (m.rope.type != RopeType::kDefault) config["rope_scaling"] = RopeScalingJson(m.rope);
  if (m.family == ModelFamily::kLlama || m.family == ModelFamily::kQwen3) config["attention_bias"] = m.output_bias;
  if (m.family == ModelFamily::kLlama) config["mlp_bias"] = false;
  AddWindow(m, config);
  if (m.max_positions > 0) config["max_position_embeddings"] = m.max_positions;
}

void AddGpt2(const ModelDescription& m, ordered_json& config) {
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

}  // namespace

std::string ArchitectureName(ModelFamily family) { return NamesOf(family).architecture; }
std::string FamilyName(ModelFamily family) { return NamesOf(family).name; }

ordered_json ConfigJson(const ModelDescription& m, const std::string& dtype) {
  ordered_json config;
  config["architectures"] = {ArchitectureName(m.family)};
  config["model_type"] = NamesOf(m.family).model_type;
  m.family == ModelFamily::kGpt2 ? AddGpt2(m, config) : AddLlama(m, config);
  config["vocab_size"] = m.vocab;
  config["tie_word_embeddings"] = m.tied;
  // Token ids are the tokenizer's, which no checkpoint of ours knows; transformers' defaults would be a guess.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["torch_dtype"] = TorchDtype(dtype);
  return config;
}

std::string TorchDtype(const std::string& dtype) {
  return dtype == "BF16" ? "bfloat16" : dtype == "F16" ? "float16" : dtype == "F64" ? "float64" : "float32";
}

}  // namespace trainyard::checkpoint
