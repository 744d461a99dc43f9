// ShapeFromConfigJson: which family a Hugging Face config.json is of, and what holds for all of them.
#include <algorithm>
#include <iterator>

#include "operator/api/names.h"
#include "operator/sizing/config_fields.h"
#include "operator/sizing/shape.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

struct Known {
  const char* architecture;
  const char* model_type;
  ModelShape (*read)(ConfigFields& fields);
  std::optional<api::Family> family = std::nullopt;
};
constexpr Known kKnown[] = {{"LlamaForCausalLM", "llama", ReadLlama, api::Family::kLlama},
                            {"MistralForCausalLM", "mistral", ReadMistral, api::Family::kMistral},
                            {"Qwen2ForCausalLM", "qwen2", ReadQwen2, api::Family::kQwen2},
                            {"Qwen3ForCausalLM", "qwen3", ReadQwen3, api::Family::kQwen3},
                            {"GemmaForCausalLM", "gemma", ReadGemma},
                            {"Gemma2ForCausalLM", "gemma2", ReadGemma2},
                            {"Gemma3ForCausalLM", "gemma3_text", ReadGemma3},
                            {"Phi3ForCausalLM", "phi3", ReadPhi3},
                            {"GPT2LMHeadModel", "gpt2", ReadGpt2, api::Family::kGpt2},
                            {"GPTNeoXForCausalLM", "gpt_neox", ReadGptNeox},
                            {"MixtralForCausalLM", "mixtral", ReadMixtral},
                            {"Qwen2MoeForCausalLM", "qwen2_moe", ReadQwen2Moe},
                            {"Qwen3MoeForCausalLM", "qwen3_moe", ReadQwen3Moe}};

std::string KnownWords() {
  std::string words;
  for (const Known& known : kKnown) words += (words.empty() ? "" : ", ") + std::string(known.architecture);
  return words;
}

std::string TextOf(const json& config, const char* key) {
  auto it = config.find(key);
  if (it != config.end() && it->is_array() && !it->empty())
    return (*it)[0].is_string() ? (*it)[0].get<std::string>() : "";
  return it != config.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

Result<ModelShape> ShapeFromConfigJson(const json& config) {
  auto bad = [](const std::string& why) { return Fail(ErrorCode::kInvalidArgument, "config.json: " + why); };
  if (!config.is_object()) return bad("not a JSON object");
  const std::string architecture = TextOf(config, "architectures");
  const std::string type = TextOf(config, "model_type");
  const Known* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) {
    return architecture.empty() ? type == k.model_type : architecture == k.architecture;
  });
  if (known == std::end(kKnown)) {
    const std::string found = api::Printable(!architecture.empty() ? architecture : type);
    return bad((found.empty() ? "it names no architecture" : "architecture " + found + " is not known here") +
               "; known are " + KnownWords() + "; a number such as --model 7B gives an estimate");
  }
  ConfigFields fields(config);
  ModelShape shape = known->read(fields);
  if (!fields.problem().empty()) return bad(fields.problem());
  shape.family = known->family;
  shape.name = std::string(known->architecture) + " (config.json)";
  if (const std::string unknown = fields.Unknown(); !unknown.empty()) {
    shape.assumption = "config.json also has " + unknown + ", taken as not changing the number of parameters";
  }
  auto counted = Counted(std::move(shape));
  if (!counted) return Fail(counted.error().Wrap("config.json"));
  return counted;
}

}  // namespace trainyard::sizing
