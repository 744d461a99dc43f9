#include "trainer/checkpoint/model_identity.h"

#include <iterator>

#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kRopeTypes[] = {"default", "linear", "llama3", "yarn"};  // in the order of RopeType

ordered_json RopeIdentity(const RopeScaling& r) {
  return {{"type", kRopeTypes[static_cast<size_t>(r.type)]},
          {"factor", r.factor},
          {"originalMaxPositions", r.original_max_positions},
          {"lowFrequencyFactor", r.low_freq_factor},
          {"highFrequencyFactor", r.high_freq_factor},
          {"betaFast", r.beta_fast},
          {"betaSlow", r.beta_slow},
          {"truncate", r.truncate},
          {"attentionFactor", r.attention_factor}};
}

RopeScaling RopeFrom(const json& identity) {
  RopeScaling r;
  const std::string type = identity.at("type").get<std::string>();
  for (size_t i = 0; i < std::size(kRopeTypes); ++i) {
    if (type == kRopeTypes[i]) r.type = static_cast<RopeType>(i);
  }
  r.factor = identity.at("factor").get<double>();
  r.original_max_positions = identity.at("originalMaxPositions").get<int64_t>();
  r.low_freq_factor = identity.at("lowFrequencyFactor").get<double>();
  r.high_freq_factor = identity.at("highFrequencyFactor").get<double>();
  r.beta_fast = identity.at("betaFast").get<double>();
  r.beta_slow = identity.at("betaSlow").get<double>();
  r.truncate = identity.at("truncate").get<bool>();
  r.attention_factor = identity.at("attentionFactor").get<double>();
  return r;
}

ModelFamily FamilyFrom(const std::string& name) {
  for (const ModelFamily family : {ModelFamily::kMistral, ModelFamily::kQwen2, ModelFamily::kQwen3}) {
    if (name == FamilyName(family)) return family;
  }
  return ModelFamily::kLlama;
}

}  // namespace

ordered_json ModelIdentity(const ModelDescription& m) {
  ordered_json out = {{"layers", m.layers},       {"hiddenSize", m.hidden},    {"attentionHeads", m.heads},
                      {"kvHeads", m.kv_heads},    {"ffnSize", m.ffn},          {"vocabSize", m.vocab},
                      {"tiedEmbeddings", m.tied}, {"ropeTheta", m.rope_theta}, {"normEpsilon", m.norm_epsilon}};
  // GPT-2 and Llama tell themselves apart by their tensors, and did so before there were others.
  if (m.family != ModelFamily::kLlama && m.family != ModelFamily::kGpt2) out["family"] = FamilyName(m.family);
  if (m.head_dim != 0) out["headSize"] = m.head_dim;
  if (m.qkv_bias) out["queryKeyValueBias"] = true;
  if (m.output_bias) out["outputBias"] = true;
  if (m.qk_norm) out["queryKeyNorm"] = true;
  if (m.window > 0) out["window"] = m.window, out["windowedLayers"] = m.windowed_layers;
  if (m.rope.type != RopeType::kDefault) out["ropeScaling"] = RopeIdentity(m.rope);
  return out;
}

ModelDescription FromIdentity(const json& identity) {
  ModelDescription m;
  m.family = FamilyFrom(identity.value("family", ""));
  m.layers = identity.at("layers").get<int64_t>();
  m.hidden = identity.at("hiddenSize").get<int64_t>();
  m.heads = identity.at("attentionHeads").get<int64_t>();
  m.kv_heads = identity.at("kvHeads").get<int64_t>();
  m.ffn = identity.at("ffnSize").get<int64_t>();
  m.vocab = identity.at("vocabSize").get<int64_t>();
  m.tied = identity.at("tiedEmbeddings").get<bool>();
  m.rope_theta = identity.at("ropeTheta").get<double>();
  m.norm_epsilon = identity.at("normEpsilon").get<double>();
  m.head_dim = identity.value("headSize", int64_t{0});
  m.qkv_bias = identity.value("queryKeyValueBias", false);
  m.output_bias = identity.value("outputBias", false);
  m.qk_norm = identity.value("queryKeyNorm", false);
  m.window = identity.value("window", int64_t{0});
  m.windowed_layers = identity.value("windowedLayers", std::vector<int64_t>());
  if (const auto rope = identity.find("ropeScaling"); rope != identity.end()) m.rope = RopeFrom(*rope);
  return m;
}

std::string IdentityDifference(const json& there, const json& here, const std::string& where) {
  const auto value = [](const json& side, const std::string& key) {
    return side.is_object() ? side.value(key, json()) : json();
  };
  const auto shown = [](const json& v) { return v.is_null() ? std::string("not said") : v.dump(); };
  for (const json* keys : {&here, &there}) {
    for (const auto& item : keys->items()) {
      const json a = value(there, item.key()), b = value(here, item.key());
      if (a != b) return item.key() + " is " + shown(a) + " there and " + shown(b) + " " + where;
    }
  }
  return "";
}

}  // namespace trainyard::checkpoint
