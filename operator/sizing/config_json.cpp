// ShapeFromConfigJson: Hugging Face's config.json, field by field, with the defaults of the transformers library.
#include <algorithm>
#include <optional>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

// Reads fields and keeps the first error, so that the readers below stay flat.
class Fields {
 public:
  explicit Fields(const json& config) : config_(config) {}

  int64_t Number(const char* name, std::optional<int64_t> otherwise, int64_t most) {
    const json* value = Find(name);
    if (value == nullptr) {
      if (otherwise) return *otherwise;
      Problem(std::string(name) + " is missing");
      return 1;
    }
    if (!value->is_number_integer() || value->get<double>() < 1 || value->get<double>() > static_cast<double>(most)) {
      Problem(std::string(name) + " is " + value->dump() + ", not a whole number from 1 to " + std::to_string(most));
      return 1;
    }
    return value->get<int64_t>();
  }

  bool Flag(const char* name, bool otherwise) {
    const json* value = Find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      Problem(std::string(name) + " is " + value->dump() + ", not true or false");
      return otherwise;
    }
    return value->get<bool>();
  }

  void Problem(const std::string& text) {
    if (problem_.empty()) problem_ = text;
  }
  const std::string& problem() const { return problem_; }

 private:
  const json* Find(const char* name) const {
    auto it = config_.find(name);
    return it == config_.end() || it->is_null() ? nullptr : &*it;
  }
  const json& config_;
  std::string problem_;
};

constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1'000'000;
constexpr int64_t kMaxHeads = 10'000;
constexpr int64_t kMaxHeadDim = 1'024;
constexpr int64_t kMaxFfn = 10'000'000;
constexpr int64_t kMaxVocab = 100'000'000;

enum class Reader { kLlama, kMistral, kQwen2, kGpt2 };

struct Known {
  const char* architecture;
  const char* model_type;
  Reader reader;
};
constexpr Known kKnown[] = {{"LlamaForCausalLM", "llama", Reader::kLlama},
                            {"MistralForCausalLM", "mistral", Reader::kMistral},
                            {"Qwen2ForCausalLM", "qwen2", Reader::kQwen2},
                            {"GPT2LMHeadModel", "gpt2", Reader::kGpt2}};

ModelShape ReadGpt2(Fields& f) {
  ModelShape m;
  m.block = BlockKind::kGpt2;
  m.layers = f.Number("n_layer", std::nullopt, kMaxLayers);
  m.hidden = f.Number("n_embd", std::nullopt, kMaxWidth);
  m.heads = f.Number("n_head", std::nullopt, kMaxHeads);
  m.kv_heads = m.heads;
  m.ffn = f.Number("n_inner", 4 * m.hidden, kMaxFfn);
  m.vocab = f.Number("vocab_size", std::nullopt, kMaxVocab);
  m.max_positions = f.Number("n_positions", 1024, kMaxVocab);
  m.tied = f.Flag("tie_word_embeddings", true);
  return m;
}

ModelShape ReadLlama(Fields& f, Reader reader) {
  ModelShape m;
  m.layers = f.Number("num_hidden_layers", std::nullopt, kMaxLayers);
  m.hidden = f.Number("hidden_size", std::nullopt, kMaxWidth);
  m.heads = f.Number("num_attention_heads", std::nullopt, kMaxHeads);
  m.kv_heads = f.Number("num_key_value_heads", m.heads, kMaxWidth);
  m.ffn = f.Number("intermediate_size", std::nullopt, kMaxFfn);
  m.vocab = f.Number("vocab_size", std::nullopt, kMaxVocab);
  m.max_positions = f.Number("max_position_embeddings", 2048, kMaxVocab);
  m.tied = f.Flag("tie_word_embeddings", false);
  const int64_t head_dim = f.Number("head_dim", std::max<int64_t>(1, m.hidden / m.heads), kMaxHeadDim);
  if (head_dim * m.heads != m.hidden) m.head_dim = head_dim;
  m.qkv_bias = reader == Reader::kQwen2;
  if (reader == Reader::kLlama) {
    m.qkv_bias = f.Flag("attention_bias", false);
    m.output_bias = m.qkv_bias;
    m.mlp_bias = f.Flag("mlp_bias", false);
  }
  return m;
}

}  // namespace

Result<ModelShape> ShapeFromConfigJson(const json& config) {
  auto bad = [](const std::string& why) { return Fail(ErrorCode::kInvalidArgument, "config.json: " + why); };
  if (!config.is_object()) return bad("not a JSON object");
  std::string architecture;
  if (auto it = config.find("architectures"); it != config.end() && it->is_array() && !it->empty()) {
    if ((*it)[0].is_string()) architecture = (*it)[0].get<std::string>();
  }
  std::string type;
  if (auto it = config.find("model_type"); it != config.end() && it->is_string()) type = it->get<std::string>();
  const Known* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) {
    return architecture.empty() ? type == k.model_type : architecture == k.architecture;
  });
  if (known == std::end(kKnown)) {
    const std::string found = !architecture.empty() ? architecture : type;
    return bad((found.empty() ? "it names no architecture" : "architecture " + found + " is not known here") +
               "; known are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and GPT2LMHeadModel; a number such "
               "as --model 7B gives an estimate");
  }
  Fields fields(config);
  ModelShape m = known->reader == Reader::kGpt2 ? ReadGpt2(fields) : ReadLlama(fields, known->reader);
  if (!fields.problem().empty()) return bad(fields.problem());
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    return bad("the hidden size " + std::to_string(m.hidden) + " is not a multiple of the " + std::to_string(m.heads) +
               " attention heads");
  }
  if (m.heads % m.kv_heads != 0) {
    return bad("num_key_value_heads " + std::to_string(m.kv_heads) + " does not divide num_attention_heads " +
               std::to_string(m.heads));
  }
  m.name = std::string(known->architecture) + " (config.json)";
  m.parameters = CountParameters(m);
  return m;
}

}  // namespace trainyard::sizing
