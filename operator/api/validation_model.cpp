#include "operator/api/validation_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/names.h"
#include "operator/api/validation_training.h"
#include "operator/api/validation_volumes.h"
#include "operator/base/quantity.h"

namespace trainyard::api {
namespace {

constexpr int64_t kMaxParameters = 1'000'000'000'000'000;

void CheckHeadSize(Checks& c, const Architecture& a) {
  const std::string p = "spec.model.architecture.headSize";
  if (a.family == Family::kGpt2) {
    c.Report(p, "is not of GPT2, whose heads are hiddenSize / attentionHeads wide; leave it out");
  } else if (a.head_size % 2 != 0) {
    c.Report(p, std::to_string(a.head_size) + " is odd, and rotary embeddings need pairs");
  }
}

void CheckArchitecture(Checks& c, const Architecture& a, const Spec& spec) {
  const std::string p = "spec.model.architecture.";
  c.Range(p + "layers", a.layers, 1, 1024);
  c.Range(p + "hiddenSize", a.hidden_size, 1, 1'048'576);
  c.Range(p + "attentionHeads", a.attention_heads, 1, 4096);
  c.Range(p + "kvHeads", a.kv_heads, 0, 4096);
  c.Range(p + "headSize", a.head_size, 0, 1024);
  c.Range(p + "ffnSize", a.ffn_size, 0, 4'194'304);
  c.Range(p + "vocabSize", a.vocab_size, 0, 16'777'216);
  c.Range(p + "maxPositions", a.max_positions, 0, kMaxSequence);
  if (a.attention_heads > 0 && a.hidden_size > 0) {
    if (a.head_size > 0) {
      CheckHeadSize(c, a);
    } else if (a.hidden_size % a.attention_heads != 0) {
      c.Report(p + "hiddenSize", std::to_string(a.hidden_size) + " is not divisible by attentionHeads " +
                                     std::to_string(a.attention_heads));
    } else if (a.family != Family::kGpt2 && a.hidden_size / a.attention_heads % 2 != 0) {
      c.Report(p + "hiddenSize", "the head size " + std::to_string(a.hidden_size / a.attention_heads) +
                                     " (hiddenSize / attentionHeads) must be even for rotary embeddings");
    }
    if (a.kv_heads > 0 && a.attention_heads % a.kv_heads != 0) {
      c.Report(p + "kvHeads",
               std::to_string(a.kv_heads) + " does not divide attentionHeads " + std::to_string(a.attention_heads));
    } else if (a.family == Family::kGpt2 && a.kv_heads > 0 && a.kv_heads != a.attention_heads) {
      c.Report(p + "kvHeads", std::to_string(a.kv_heads) + " is not attentionHeads " +
                                  std::to_string(a.attention_heads) +
                                  ", and GPT2 has no grouped queries; leave it out");
    }
  }
  if (a.vocab_size == 1) c.Report(p + "vocabSize", "must be 0 (chosen) or at least 2");
  if (spec.data && spec.data->format == DataFormat::kTokens && a.vocab_size == 0) {
    c.Report(p + "vocabSize", "is required when spec.data.format is Tokens");
  }
  if (spec.data && spec.data->format == DataFormat::kText && a.vocab_size > 0 && a.vocab_size < 256) {
    c.Report(p + "vocabSize", std::to_string(a.vocab_size) + " is less than the 256 byte values of Text data");
  }
  if (a.max_positions > 0 && a.max_positions < spec.training.sequence_length) {
    c.Report(p + "maxPositions", std::to_string(a.max_positions) + " is less than spec.training.sequenceLength " +
                                     std::to_string(spec.training.sequence_length));
  }
}

// The last words of the names of a block's matrices.
std::vector<std::string_view> TargetsOf(Family family) {
  if (family == Family::kGpt2) return {"c_attn", "c_proj", "c_fc"};
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

void CheckAdapter(Checks& c, const Adapter& a, const Model& model) {
  const std::string p = "spec.model.adapter";
  if (!model.pretrained) {
    c.Report(p, "needs spec.model.pretrained: an adapter is trained beside the weights of a model that exists");
  }
  c.Range(p + ".rank", a.rank, 1, 1024);
  if (model.architecture && a.rank <= 1024 && a.rank > model.architecture->hidden_size) {
    c.Report(p + ".rank", std::to_string(a.rank) + " is more than spec.model.architecture.hiddenSize " +
                              std::to_string(model.architecture->hidden_size));
  }
  c.Range(p + ".alpha", a.alpha, 0, 1'000'000, true);
  c.Range(p + ".dropout", a.dropout, 0, 1);
  if (a.dropout == 1) c.Report(p + ".dropout", "1.0 must be less than 1.0");
  c.Items(p + ".targets", a.targets.size(), 32);
  std::set<std::string> seen;
  for (size_t i = 0; i < a.targets.size(); ++i) {
    const std::string path = At(p + ".targets", i);
    if (!c.Required(path, a.targets[i], "the last word of the names of matrices, such as q_proj")) continue;
    c.Length(path, a.targets[i], 63);
    c.Unique(path, a.targets[i], seen);
    if (!model.architecture) continue;
    const auto known = TargetsOf(model.architecture->family);
    if (std::find(known.begin(), known.end(), a.targets[i]) != known.end()) continue;
    c.Report(path, "no matrix of the blocks of " + std::string(ToString(model.architecture->family)) + " is called " +
                       Quoted(a.targets[i]) + "; " + Suggest(a.targets[i], known));
  }
}

}  // namespace

void CheckModel(Checks& c, const Spec& spec) {
  const Model& model = spec.model;
  if (!model.parameters.empty()) {
    auto count = ParseCount(model.parameters);
    if (!count) {
      c.Report("spec.model.parameters",
               Quoted(model.parameters) + " is not a parameter count such as 125M, 7B, 1.1T or 7000000000");
    } else {
      c.Range("spec.model.parameters", *count, 1, kMaxParameters);
    }
  }
  if (!model.parameters.empty() && model.architecture) {
    c.Report("spec.model", "give parameters or architecture, not both");
  } else if (model.pretrained && model.parameters.empty() && !model.architecture) {
    c.Report("spec.model",
             "pretrained needs architecture or parameters beside it, since the operator cannot read the volume; "
             "trainyard plan --config writes them");
  } else if (spec.UsesBundledTrainer() && !model.architecture && !model.pretrained) {
    c.Report("spec.model.architecture",
             "is required, since the bundled trainer must know the model; parameters alone "
             "is enough with an image or command of your own");
  } else if (model.parameters.empty() && !model.architecture) {
    c.Report("spec.model", "give parameters (such as 7B) or architecture");
  }
  if (model.architecture) CheckArchitecture(c, *model.architecture, spec);
  if (model.adapter) CheckAdapter(c, *model.adapter, model);
  if (!model.pretrained) return;
  const std::string p = "spec.model.pretrained";
  CheckDirectory(c, spec, p, model.pretrained->volume, model.pretrained->path);
  if (!spec.UsesBundledTrainer()) {
    c.Report(p, "needs the bundled trainer: a program of your own reads its model itself");
  }
}

}  // namespace trainyard::api
