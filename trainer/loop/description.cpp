#include "trainer/loop/description.h"

#include <string>
#include <utility>

#include "trainer/checkpoint/huggingface.h"

namespace trainyard::loop {
namespace {

using checkpoint::ModelDescription;
using checkpoint::ModelFamily;

ModelFamily FamilyOf(config::Family family) {
  switch (family) {
    case config::Family::kLlama:
      return ModelFamily::kLlama;
    case config::Family::kMistral:
      return ModelFamily::kMistral;
    case config::Family::kQwen2:
      return ModelFamily::kQwen2;
    case config::Family::kQwen3:
      return ModelFamily::kQwen3;
    case config::Family::kGpt2:
      return ModelFamily::kGpt2;
  }
  return ModelFamily::kLlama;
}

// A new model of the job's sizes, with what all models of its family have; no window and no stretched positions.
ModelDescription FromSizes(const config::Model& m) {
  ModelDescription d;
  d.family = FamilyOf(m.family);
  d.layers = m.layers, d.hidden = m.hidden_size, d.heads = m.attention_heads, d.kv_heads = m.kv_heads;
  d.ffn = m.ffn_size, d.vocab = m.vocab_size, d.max_positions = m.max_positions;
  d.tied = m.tied_embeddings;
  d.rope_theta = m.rope_theta, d.norm_epsilon = m.norm_epsilon;
  d.head_dim = m.head_size * m.attention_heads == m.hidden_size ? 0 : m.head_size;
  d.qkv_bias = m.family == config::Family::kQwen2;
  d.qk_norm = m.family == config::Family::kQwen3;
  return d;
}

// The first size that is not the job's, in one line; empty: none.
std::string Difference(const config::Model& m, const ModelDescription& d) {
  if (FamilyOf(m.family) != d.family) {
    return "model.architecture.family: the job says " + checkpoint::FamilyName(FamilyOf(m.family)) +
           ", config.json says " + checkpoint::FamilyName(d.family);
  }
  const std::pair<const char*, std::pair<int64_t, int64_t>> sizes[] = {
      {"layers", {m.layers, d.layers}},
      {"hiddenSize", {m.hidden_size, d.hidden}},
      {"attentionHeads", {m.attention_heads, d.heads}},
      {"kvHeads", {m.kv_heads, d.kv_heads}},
      {"headSize", {m.head_size > 0 ? m.head_size : m.hidden_size / m.attention_heads, d.HeadDim()}},
      {"ffnSize", {m.ffn_size, d.ffn}},
      {"vocabSize", {m.vocab_size, d.vocab}},
      {"tiedEmbeddings", {m.tied_embeddings, d.tied}}};
  for (const auto& [name, values] : sizes) {
    const auto [wanted, found] = values;
    if (wanted == found) continue;
    return std::string("model.architecture.") + name + ": the job says " + std::to_string(wanted) +
           ", config.json says " + std::to_string(found);
  }
  if (m.max_positions > d.max_positions) {
    return "model.architecture.maxPositions: the job says " + std::to_string(m.max_positions) +
           ", config.json says at most " + std::to_string(d.max_positions);
  }
  return "";
}

// What config::Parse checks where the job has sizes.
std::string Misfit(const config::Job& job, const ModelDescription& d) {
  if (job.training.sequence_length > d.max_positions) {
    return "training.sequenceLength: " + std::to_string(job.training.sequence_length) + " is more than the " +
           std::to_string(d.max_positions) + " positions of the model";
  }
  if (job.data.format == config::DataFormat::kText && d.vocab < 256) {
    return "data.format: Text has 256 bytes, more than the " + std::to_string(d.vocab) +
           " tokens of the model's vocabulary";
  }
  if (job.data.document_separator.value_or(0) >= d.vocab) {
    return "data.documentSeparator: " + std::to_string(*job.data.document_separator) + " is not one of the " +
           std::to_string(d.vocab) + " tokens of the model's vocabulary";
  }
  return "";
}

}  // namespace

Outcome<ModelDescription> Describe(const config::Job& job, const std::string& volume_root) {
  const config::Model& m = job.model;
  if (!m.pretrained) return FromSizes(m);
  const std::string path = m.pretrained->Resolve(volume_root) + "/config.json";
  const auto bad = [&](const std::string& what) {
    return Fails(contract::kExitConfiguration, "model.pretrained: " + what);
  };
  const Result<ModelDescription> read = checkpoint::ReadConfigJson(path);
  if (!read) return bad(read.error().message);
  std::string problem = m.HasSizes() ? Difference(m, *read) : "";
  if (problem.empty()) problem = Misfit(job, *read);
  if (!problem.empty()) return bad(path + ": " + problem);
  return *read;
}

Outcome<std::optional<checkpoint::AdapterDescription>> DescribeAdapter(const config::Job& job,
                                                                       const ModelDescription& model) {
  if (!job.model.adapter) return std::optional<checkpoint::AdapterDescription>();
  const config::Adapter& wanted = *job.model.adapter;
  auto targets = checkpoint::ResolveTargets(model, wanted.targets);
  if (!targets) return Fails(contract::kExitConfiguration, "model.adapter.targets: " + targets.error().message);
  return std::optional(checkpoint::AdapterDescription{.rank = wanted.rank,
                                                      .alpha = wanted.alpha,
                                                      .dropout = wanted.dropout,
                                                      .targets = std::move(*targets),
                                                      .nf4 = wanted.nf4});
}

}  // namespace trainyard::loop
