// ParseConfigJson of huggingface.h. Keys and defaults are those of transformers' configuration_*.py and
// modeling_rope_utils.py.
#include <algorithm>
#include <cmath>

#include "trainer/checkpoint/config_fields.h"
#include "trainer/checkpoint/foreign_tensors.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMaxConfigBytes = 16 << 20;

// What says how a model was made, is run, or makes text, and nothing about what it computes from weights and tokens.
// Dropout is in it: our trainer has none, whatever a model was pretrained with.
const std::set<std::string>& Harmless() {
  static const std::set<std::string> keys = {"_attn_implementation",
                                             "_name_or_path",
                                             "architectures",
                                             "attention_dropout",
                                             "attn_implementation",
                                             "attn_pdrop",
                                             "bad_words_ids",
                                             "begin_suppress_tokens",
                                             "bos_token_id",
                                             "chunk_size_feed_forward",
                                             "classifier_dropout",
                                             "cross_attention_hidden_size",
                                             "decoder_start_token_id",
                                             "diversity_penalty",
                                             "do_sample",
                                             "dtype",
                                             "early_stopping",
                                             "embd_pdrop",
                                             "encoder_no_repeat_ngram_size",
                                             "eos_token_id",
                                             "exponential_decay_length_penalty",
                                             "finetuning_task",
                                             "forced_bos_token_id",
                                             "forced_eos_token_id",
                                             "gradient_checkpointing",
                                             "hidden_dropout",
                                             "id2label",
                                             "initializer_range",
                                             "is_decoder",
                                             "label2id",
                                             "length_penalty",
                                             "max_length",
                                             "min_length",
                                             "model_type",
                                             "n_ctx",
                                             "no_repeat_ngram_size",
                                             "num_beam_groups",
                                             "num_beams",
                                             "num_return_sequences",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_scores",
                                             "pad_token_id",
                                             "prefix",
                                             "pretraining_tp",
                                             "problem_type",
                                             "remove_invalid_values",
                                             "reorder_and_upcast_attn",
                                             "repetition_penalty",
                                             "resid_pdrop",
                                             "return_dict",
                                             "return_dict_in_generate",
                                             "sep_token_id",
                                             "summary_activation",
                                             "summary_first_dropout",
                                             "summary_proj_to_labels",
                                             "summary_type",
                                             "summary_use_proj",
                                             "suppress_tokens",
                                             "task_specific_params",
                                             "temperature",
                                             "tf_legacy_loss",
                                             "tie_encoder_decoder",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torch_dtype",
                                             "torchscript",
                                             "transformers_version",
                                             "typical_p",
                                             "unsloth_fixed",
                                             "unsloth_version",
                                             "use_bfloat16",
                                             "use_cache"};
  return keys;
}

double YarnMagnitude(double factor, double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; }

void ParseYarn(ConfigFields& f, RopeScaling& rope) {
  rope.beta_fast = f.Number("beta_fast", 32.0);
  rope.beta_slow = f.Number("beta_slow", 1.0);
  rope.truncate = f.Flag("truncate", true);
  const bool scaled = f.Find("mscale") != nullptr && f.Find("mscale_all_dim") != nullptr;
  const double otherwise =
      scaled ? YarnMagnitude(rope.factor, f.Number("mscale")) / YarnMagnitude(rope.factor, f.Number("mscale_all_dim"))
             : YarnMagnitude(rope.factor, 1);
  rope.attention_factor = f.Number("attention_factor", otherwise);
}

void ParseScaling(ConfigFields& f, const std::string& type, ModelDescription& m) {
  RopeScaling& rope = m.rope;
  if (type == "linear") {
    rope.type = RopeType::kLinear;
    rope.factor = f.Number("factor");
  } else if (type == "llama3") {
    rope.type = RopeType::kLlama3;
    rope.factor = f.Number("factor");
    rope.low_freq_factor = f.Number("low_freq_factor");
    rope.high_freq_factor = f.Number("high_freq_factor");
    rope.original_max_positions = f.Size("original_max_position_embeddings");
    if (rope.high_freq_factor <= rope.low_freq_factor) f.Complain("high_freq_factor", "is not above low_freq_factor");
  } else if (type == "yarn") {
    rope.type = RopeType::kYarn;
    rope.factor = f.Number("factor");
    rope.original_max_positions = f.Size("original_max_position_embeddings", m.max_positions);
    ParseYarn(f, rope);
    if (m.rope_theta <= 1) f.Complain("rope_theta", "is not above 1");
  } else if (type != "default") {
    f.Complain("rope_type", json(type).dump(-1, ' ', true, json::error_handler_t::replace) +
                                " is not what our trainer computes (default, linear, llama3, yarn)");
  }
}

// rope_theta and rope_scaling of transformers 4, or rope_parameters of transformers 5, which holds both.
void ParseRope(ConfigFields& f, ModelDescription& m) {
  m.rope_theta = f.Number("rope_theta", 10000.0);
  f.Only("partial_rotary_factor", {1.0});
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* value = f.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      f.Complain(key, "is not an object");
      return;
    }
    ConfigFields part(*value, f.name() + ": " + key);
    m.rope_theta = part.Number("rope_theta", m.rope_theta);
    const std::string older = part.Text("type", "default");  // before transformers 4.45
    ParseScaling(part, part.Text("rope_type", older), m);
    part.Finish({"finetuned"});
    f.Take(part);
  }
}

// layer_types, or `first`, the first layer that has the window. Without a window no layer can have one.
void ParseWindow(ConfigFields& f, int64_t window, int64_t first, ModelDescription& m) {
  std::vector<int64_t> layers;
  if (const json* types = f.Find("layer_types")) {
    if (!types->is_array() || types->size() != static_cast<size_t>(m.layers)) {
      f.Complain("layer_types", "does not name each layer");
      return;
    }
    for (size_t layer = 0; layer < types->size(); ++layer) {
      const json& type = (*types)[layer];
      if (type == "sliding_attention") {
        layers.push_back(static_cast<int64_t>(layer));
      } else if (type != "full_attention") {
        f.Complain("layer_types", type.dump(-1, ' ', true, json::error_handler_t::replace) +
                                      " is not what our trainer computes (full_attention, sliding_attention)");
      }
    }
  } else {
    for (int64_t layer = first; window > 0 && layer < m.layers; ++layer) layers.push_back(layer);
  }
  if (layers.empty() || window == 0) return;
  m.window = window;
  m.windowed_layers = std::move(layers);
}

// What the relatives of Llama have in common.
ModelDescription ParseCommon(ConfigFields& f, ModelFamily family) {
  ModelDescription m;
  m.family = family;
  m.layers = f.Size("num_hidden_layers", std::nullopt, kMostLayers);
  m.hidden = f.Size("hidden_size");
  m.heads = f.Size("num_attention_heads");
  const bool own = family == ModelFamily::kLlama || f.Has("num_key_value_heads");  // null means the same everywhere
  m.kv_heads = own ? f.Size("num_key_value_heads", m.heads) : f.Size("num_key_value_heads");
  m.ffn = f.Size("intermediate_size");
  m.vocab = f.Size("vocab_size");
  m.max_positions = f.Size("max_position_embeddings", 2048);
  m.tied = f.Flag("tie_word_embeddings", false);
  m.norm_epsilon = f.Number("rms_norm_eps", 1e-6);
  f.Only("hidden_act", {"silu", "swish"});
  f.Only("mlp_bias", {false});
  f.Only("is_encoder_decoder", {false});
  f.Only("add_cross_attention", {false});
  ParseRope(f, m);
  // Qwen3 alone has one of its own where nothing is said.
  const json* given = f.Find("head_dim");
  const bool preset = family == ModelFamily::kQwen3 && !f.Has("head_dim");
  const int64_t head = given != nullptr ? f.Size("head_dim") : preset ? 128 : m.hidden / m.heads;
  if (head * m.heads != m.hidden) m.head_dim = head;
  if (given == nullptr && !preset && m.hidden % m.heads != 0) {
    f.Complain("num_attention_heads", "it does not divide hidden_size");
  }
  if (m.HeadDim() % 2 != 0) f.Complain("head_dim", "a head of " + std::to_string(m.HeadDim()) + " has no pairs");
  if (m.heads % m.kv_heads != 0) f.Complain("num_key_value_heads", "it does not divide num_attention_heads");
  return m;
}

ModelDescription ParseLlama(ConfigFields& f) {
  ModelDescription m = ParseCommon(f, ModelFamily::kLlama);
  m.qkv_bias = m.output_bias = f.Flag("attention_bias", false);
  f.Only("sliding_window", {nullptr});
  return m;
}

ModelDescription ParseMistral(ConfigFields& f) {
  ModelDescription m = ParseCommon(f, ModelFamily::kMistral);
  f.Only("attention_bias", {false});
  // A file without the key has the window of the first Mistral; null means none.
  const int64_t absent = f.Has("sliding_window") ? 0 : 4096;
  const int64_t window = f.Find("sliding_window") != nullptr ? f.Size("sliding_window") : absent;
  f.Only("layer_types", {nullptr});
  ParseWindow(f, window, 0, m);
  return m;
}

// Both have a window in the upper layers, where it is asked for.
void ParseQwenWindow(ConfigFields& f, ModelDescription& m) {
  const bool used = f.Flag("use_sliding_window", false);
  const int64_t window =
      f.Find("sliding_window") == nullptr && f.Has("sliding_window") ? 0 : f.Size("sliding_window", 4096);
  const json* first = f.Find("max_window_layers");
  const bool whole = first == nullptr || (first->is_number_integer() && *first >= 0 && *first <= kMostLayers);
  if (!whole) f.Complain("max_window_layers", "is not a number of layers");
  ParseWindow(f, used ? window : 0, first != nullptr && whole ? first->get<int64_t>() : 28, m);
  f.Only("use_mrope", {false});
}

ModelDescription ParseQwen2(ConfigFields& f) {
  ModelDescription m = ParseCommon(f, ModelFamily::kQwen2);
  f.Only("attention_bias", {true});
  m.qkv_bias = true;
  ParseQwenWindow(f, m);
  return m;
}

ModelDescription ParseQwen3(ConfigFields& f) {
  ModelDescription m = ParseCommon(f, ModelFamily::kQwen3);
  m.qkv_bias = m.output_bias = f.Flag("attention_bias", false);
  m.qk_norm = true;
  ParseQwenWindow(f, m);
  return m;
}

ModelDescription ParseGpt2(ConfigFields& f) {
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
  f.Only("is_encoder_decoder", {false});
  if (m.hidden % m.heads != 0) f.Complain("n_head", "it does not divide n_embd");
  return m;
}

struct Known {
  const char* architecture;
  const char* model_type;
  ModelDescription (*parse)(ConfigFields& fields);
};
constexpr Known kKnown[] = {{"LlamaForCausalLM", "llama", ParseLlama},
                            {"MistralForCausalLM", "mistral", ParseMistral},
                            {"Qwen2ForCausalLM", "qwen2", ParseQwen2},
                            {"Qwen3ForCausalLM", "qwen3", ParseQwen3},
                            {"GPT2LMHeadModel", "gpt2", ParseGpt2}};

// By `architectures`, or by `model_type` where there are none.
const Known* KnownOf(const json& config) {
  const auto list = config.find("architectures");
  const bool named = list != config.end() && !list->is_null();
  const json name = !named                                  ? config.value("model_type", json())
                    : list->is_array() && list->size() == 1 ? list->front()
                                                            : json();
  for (const Known& known : kKnown) {
    if (name == (named ? known.architecture : known.model_type)) return &known;
  }
  return nullptr;
}

}  // namespace

Result<ModelDescription> ParseConfigJson(const json& config, const std::string& where) {
  const auto bad = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (!config.is_object()) return bad(where + ": it is not a JSON object");
  const Known* known = KnownOf(config);
  if (known == nullptr) {
    std::string names;
    for (const Known& one : kKnown) names += (names.empty() ? "" : ", ") + std::string(one.architecture);
    return bad(where + ": architectures: only " + names + " can be trained here, one of them at a time");
  }
  ConfigFields fields(config, where);
  ModelDescription m = known->parse(fields);
  fields.Only("pruned_heads", {json::object()});
  fields.Finish(Harmless());
  if (!fields.problem().empty()) return bad(fields.problem());
  return m;
}

Result<ModelDescription> ReadConfigJson(const std::string& path, FileSystem& fs) {
  const Result<std::string> text = ReadFollowed(fs, path, kMaxConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return Fail(ErrorCode::kNotFound, path + " does not exist");
  if (!text) return Fail(text.error());
  const json config = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return ParseConfigJson(config, path);
}

}  // namespace trainyard::checkpoint
