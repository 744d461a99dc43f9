#include "trainer/config/model_json.h"

#include <string>

#include "trainer/config/checkpoint_json.h"

namespace trainyard::config {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

void Require(bool holds, const std::string& problem, Problems& problems) {
  if (!holds) problems.push_back(problem);
}

void ReadSizes(JsonReader& r, Model& m) {
  m.family = r.Enum<Family>("family", {{"Llama", Family::kLlama},
                                       {"Mistral", Family::kMistral},
                                       {"Qwen2", Family::kQwen2},
                                       {"Qwen3", Family::kQwen3},
                                       {"GPT2", Family::kGpt2}});
  const bool gpt2 = m.family == Family::kGpt2;
  m.layers = r.Int("layers", 1, 100000);
  m.hidden_size = r.Int("hiddenSize", 1, kLargeSize);
  m.attention_heads = r.Int("attentionHeads", 1, kLargeSize);
  m.kv_heads = gpt2 ? r.Int("kvHeads", 1, kLargeSize, m.attention_heads) : r.Int("kvHeads", 1, kLargeSize);
  if (!gpt2) m.head_size = r.Int("headSize", 0, kLargeSize, 0);
  m.ffn_size = r.Int("ffnSize", 1, kLargeSize);
  m.vocab_size = r.Int("vocabSize", 2, kLargeSize);
  m.tied_embeddings = r.Bool("tiedEmbeddings");
  m.max_positions = r.Int("maxPositions", 1, kLargeSize);
  if (!gpt2) m.rope_theta = r.Number("ropeTheta", 0, 1e12, true, 10000.0);
  m.norm_epsilon = r.Number("normEpsilon", 0, 1, true, 1e-5);
}

std::optional<Adapter> ReadAdapter(JsonReader r) {
  if (!r.present()) return std::nullopt;
  enum class Type { kLora };
  r.Enum<Type>("type", {{"LoRA", Type::kLora}});
  Adapter a;
  a.rank = r.Int("rank", 1, kLargeSize);
  a.alpha = r.Number("alpha", 0, 1e9, true);
  a.dropout = r.Fraction("dropout");
  const auto targets = r.Array("targets", true);
  for (const nlohmann::json* target : targets.value_or(std::vector<const nlohmann::json*>{})) {
    const bool name = target->is_string() && !target->get_ref<const std::string&>().empty();
    if (!name) r.Add("targets", "has something that is no name of a matrix, such as q_proj");
    if (name) a.targets.push_back(target->get<std::string>());
  }
  a.nf4 = r.Enum<bool>("quantizeBase", {{"None", false}, {"NF4", true}});
  r.Finish();
  return a;
}

}  // namespace

Model ReadModel(JsonReader r) {
  Model m;
  JsonReader pretrained = r.Object("pretrained", true);
  if (pretrained.present()) {
    m.pretrained = ReadVolumePath(pretrained);
    pretrained.Finish();
  }
  m.adapter = ReadAdapter(r.Object("adapter", true));
  if (!m.pretrained || r.Has("layers")) ReadSizes(r, m);
  r.Finish();
  return m;
}

void CheckModel(const Model& m, Problems& problems) {
  const bool divides = m.hidden_size % m.attention_heads == 0;
  Require(divides || m.head_size > 0,
          "model.hiddenSize: " + Text(m.hidden_size) + " is not a multiple of model.attentionHeads " +
              Text(m.attention_heads),
          problems);
  const int64_t head = m.head_size > 0 ? m.head_size : m.hidden_size / m.attention_heads;
  Require(m.family == Family::kGpt2 || (m.head_size == 0 && !divides) || head % 2 == 0,
          std::string(m.head_size > 0 ? "model.headSize" : "model.hiddenSize") + ": a head of " + Text(head) +
              " is odd, and rotary positions need pairs; change " +
              (m.head_size > 0 ? "it" : "hiddenSize or attentionHeads"),
          problems);
  Require(
      m.attention_heads % m.kv_heads == 0,
      "model.attentionHeads: " + Text(m.attention_heads) + " is not a multiple of model.kvHeads " + Text(m.kv_heads),
      problems);
  Require(m.family != Family::kGpt2 || m.kv_heads == m.attention_heads,
          "model.kvHeads: " + Text(m.kv_heads) + " is not model.attentionHeads " + Text(m.attention_heads) +
              ", and GPT2 has no grouped queries; leave it out",
          problems);
}

void CheckModelFits(const Job& job, Problems& problems) {
  const Model& m = job.model;
  Require(job.training.sequence_length <= m.max_positions,
          "training.sequenceLength: " + Text(job.training.sequence_length) + " is more than model.maxPositions " +
              Text(m.max_positions),
          problems);
  Require(job.data.format != DataFormat::kText || m.vocab_size >= 256,
          "model.vocabSize: " + Text(m.vocab_size) + " is too small for data.format Text; use 256", problems);
  const int64_t separator = job.data.document_separator.value_or(0);
  Require(separator < m.vocab_size,
          "data.documentSeparator: " + Text(separator) + " is not a token of the vocabulary of " + Text(m.vocab_size),
          problems);
}

}  // namespace trainyard::config
