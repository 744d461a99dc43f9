#include "trainer/loop/state.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/loop/determinism.h"
#include "trainer/loop/optimizer.h"

namespace trainyard::loop {
namespace {

constexpr int kStateVersion = 1;

// A count as JSON has it without loss. Throws nlohmann::json::exception, as at() does, for anything else.
int64_t Count(const nlohmann::json& state, const char* key) {
  const nlohmann::json& value = state.at(key);
  constexpr int64_t kMost = int64_t{1} << 53;
  if (!value.is_number_integer() || value < 0 || value > kMost) {
    throw nlohmann::json::other_error::create(501, std::string(key) + " is " + value.dump() + ", no count", &state);
  }
  return value.get<int64_t>();
}

std::optional<double> OptionalNumber(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string AdapterDifference(nlohmann::json there, const checkpoint::AdapterDescription& adapter, bool weights_only) {
  nlohmann::json here = checkpoint::AdapterJson(adapter);
  for (const char* key : {"dropout", "quantizeBase"}) {
    if (!weights_only || !there.is_object()) break;
    there.erase(key);
    here.erase(key);
  }
  return checkpoint::IdentityDifference(there, here);
}

// That the adapter was trained on what model.pretrained is now.
Outcome<void> CheckBase(const Session& s, const nlohmann::json& state) {
  const Result<std::optional<checkpoint::BaseReference>> there = checkpoint::BaseOf(state);
  if (!there) return Fails(contract::kExitCheckpoint, there.error().message);
  if (!*there || !s.base) return {};  // imported without its base
  const std::string difference = checkpoint::BaseDifference(**there, s.base->reference);
  if (difference.empty()) return {};
  return Fails(contract::kExitCheckpoint, difference + "; put model.pretrained back or use another checkpoint path");
}

}  // namespace

std::string TrainStateJson(const Session& s) {
  nlohmann::ordered_json json = {{"version", kStateVersion},
                                 {"step", s.progress.step},
                                 {"consumedSequences", s.progress.cursor},
                                 {"consumedTokens", s.progress.tokens},
                                 {"skippedSteps", s.progress.skipped},
                                 {"seed", s.job.training.seed},
                                 {"sequenceLength", s.job.training.sequence_length},
                                 {"globalBatchSize", s.job.training.global_batch_size},
                                 {"dataFingerprint", s.train->fingerprint()},
                                 {"resume", ResumeDirective(*s.job.checkpoint)},
                                 {"worldSize", s.env.world},
                                 {"threads", s.threads},
                                 {"optimizer", StateKind(s.job.training.optimizer)},
                                 {"rate", RateState(s.job.training)},
                                 {"maxPositions", s.description.max_positions},
                                 {"model", checkpoint::ModelIdentity(s.description)}};
  if (s.adapter) json["adapter"] = checkpoint::AdapterJson(*s.adapter);
  if (s.base) json["base"] = checkpoint::BaseJson(s.base->reference);
  if (s.job.training.determinism != config::Determinism::kNone) json["determinism"] = DeterminismState(s);
  if (s.progress.loss) json["loss"] = *s.progress.loss;
  if (s.progress.initial_validation_loss) json["initialValidationLoss"] = *s.progress.initial_validation_loss;
  if (s.progress.validation_loss) json["validationLoss"] = *s.progress.validation_loss;
  // Directories are as the user named them.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

Outcome<void> CheckModel(const Session& s, const nlohmann::json& state, bool weights_only) {
  const auto bad = [](const std::string& what) { return Fails(contract::kExitCheckpoint, what); };
  const std::string difference =
      checkpoint::IdentityDifference(state.value("model", nlohmann::json()), checkpoint::ModelIdentity(s.description));
  if (!difference.empty()) {
    return bad("it is of another model: " + difference + "; set it back or use another checkpoint path");
  }
  const bool adapter = checkpoint::HoldsAdapter(state);
  if (adapter && !s.adapter) {
    return bad(
        "it holds an adapter, and the job trains a whole model: set model.adapter, or use another checkpoint path");
  }
  if (!adapter && s.adapter) {
    return bad(
        "it holds a whole model, and the job trains an adapter: export it (trainyard checkpoints export) to start from "
        "it "
        "with model.pretrained, and use another checkpoint path");
  }
  if (!s.adapter) return {};
  const std::string other = AdapterDifference(state.at("adapter"), *s.adapter, weights_only);
  if (!other.empty()) return bad("it is of another adapter: " + other + "; set it back or use another checkpoint path");
  return CheckBase(s, state);
}

Outcome<Progress> ParseTrainState(const Session& s, const nlohmann::json& state) {
  Progress progress;
  uint64_t seed = 0;
  int64_t length = 0;
  std::string fingerprint;
  std::string optimizer;
  try {
    const int version = state.at("version").get<int>();
    if (version != kStateVersion) {
      return Fails(contract::kExitCheckpoint, "train_state.json has version " + std::to_string(version) +
                                                  ", this program reads version " + std::to_string(kStateVersion));
    }
    if (state.value("weightsOnly", false)) {
      return Fails(contract::kExitCheckpoint,
                   "it holds weights alone (an import): start from it with checkpoint.resumeFrom and weightsOnly, into "
                   "another path");
    }
    progress.step = Count(state, "step");
    progress.cursor = Count(state, "consumedSequences");
    progress.tokens = Count(state, "consumedTokens");
    // States of before steps could be skipped do not say it.
    if (state.contains("skippedSteps")) progress.skipped = Count(state, "skippedSteps");
    seed = state.at("seed").get<uint64_t>();
    length = Count(state, "sequenceLength");
    fingerprint = state.at("dataFingerprint").get<std::string>();
    static_cast<void>(state.at("model"));
    optimizer = state.value("optimizer", "AdamW");  // states of before there was another do not say it
  } catch (const nlohmann::json::exception& bad) {
    return Fails(contract::kExitCheckpoint, std::string("train_state.json is not one of ours: ") + bad.what());
  }
  if (auto same = CheckModel(s, state); !same) return Fails(same.error());
  if (const std::string wants = StateKind(s.job.training.optimizer); optimizer != wants) {
    return Fails(contract::kExitConfiguration,
                 "it was made with " + optimizer + ", the job trains with " + wants +
                     ": its optimizer state cannot go on; set training.optimizer back or use another checkpoint path");
  }
  if (seed != s.job.training.seed || length != s.job.training.sequence_length) {
    return Fails(contract::kExitConfiguration,
                 "the checkpoint was made with seed " + std::to_string(seed) + " and sequenceLength " +
                     std::to_string(length) + ", the job says " + std::to_string(s.job.training.seed) + " and " +
                     std::to_string(s.job.training.sequence_length) +
                     ": the order of samples would change; set them back or use another checkpoint path");
  }
  if (fingerprint != s.train->fingerprint()) {
    return Fails(contract::kExitData, "the training data (fingerprint " + s.train->fingerprint() +
                                          ") is not the data of the checkpoint (" + fingerprint +
                                          "): put files and weights back or use another checkpoint path");
  }
  progress.loss = OptionalNumber(state, "loss");
  progress.initial_validation_loss = OptionalNumber(state, "initialValidationLoss");
  progress.validation_loss = OptionalNumber(state, "validationLoss");
  progress.saved_step = progress.step;
  return progress;
}

std::string ResumeDirective(const config::Checkpoint& checkpoint) {
  switch (checkpoint.resume) {
    case config::Resume::kLatest:
      return "Latest";
    case config::Resume::kNever:
      return "Never";
    case config::Resume::kStep:
      return "Step " + std::to_string(checkpoint.resume_step);
  }
  return "Latest";
}

}  // namespace trainyard::loop
