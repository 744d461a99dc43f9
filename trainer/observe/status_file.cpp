#include "trainer/observe/status_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"
#include "trainer/observe/step_log.h"

namespace trainyard::observe {

namespace {

nlohmann::ordered_json CheckpointJson(const CheckpointStatus& status) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!status.time.empty()) {
    json["step"] = status.step;
    json["bytes"] = status.bytes;
    json["seconds"] = Round9(status.seconds);
    json["time"] = status.time;
  }
  if (status.stall_seconds) json["stallSeconds"] = Round9(*status.stall_seconds);
  if (status.write_seconds) json["writeSeconds"] = Round9(*status.write_seconds);
  if (status.verified) json["verified"] = *status.verified;
  if (status.verify_seconds) json["verifySeconds"] = Round9(*status.verify_seconds);
  if (!status.damage.empty()) json["damage"] = status.damage;
  if (status.every_seconds) json["everySeconds"] = Round9(*status.every_seconds);
  if (status.cost_seconds) json["costSeconds"] = Round9(*status.cost_seconds);
  if (status.next_step) json["nextStep"] = *status.next_step;
  if (status.free_bytes) json["freeBytes"] = *status.free_bytes;
  if (status.directory_bytes) json["directoryBytes"] = *status.directory_bytes;
  if (status.failures > 0) json["failures"] = status.failures;
  if (!status.failure.empty()) json["failure"] = status.failure;
  return json;
}

}  // namespace

std::string ToJson(const TrainerStatus& status) {
  nlohmann::ordered_json json;
  const auto number = [&json](const char* name, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) json[name] = Round9(*value);
  };
  json["contract"] = contract::kVersion;
  json["jobUid"] = status.job_uid;
  json["attempt"] = status.attempt;
  json["round"] = status.round;
  json["phase"] = status.phase;
  json["step"] = status.step;
  json["steps"] = status.steps;
  number("loss", status.loss);
  number("validationLoss", status.validation_loss);
  if (status.validation_loss) number("validationPerplexity", std::exp(*status.validation_loss));
  number("initialValidationLoss", status.initial_validation_loss);
  number("tokensPerSecond", status.tokens_per_second);
  number("mfu", status.mfu);
  number("stepSeconds", status.step_seconds);
  number("dataSeconds", status.data_seconds);
  number("computeSeconds", status.compute_seconds);
  number("communicationSeconds", status.communication_seconds);
  number("optimizerSeconds", status.optimizer_seconds);
  number("checkpointSeconds", status.checkpoint_seconds);
  if (status.resumed_from_step) json["resumedFromStep"] = *status.resumed_from_step;
  if (status.restored) {
    json["restored"] = {{"seconds", Round9(status.restored->seconds)},
                        {"bytesRead", status.restored->bytes_read},
                        {"mostBytesRead", status.restored->most_bytes_read}};
    if (const auto seconds = status.restored->first_step_seconds) {
      json["restored"]["firstStepSeconds"] = Round9(*seconds);
    }
  }
  if (status.skipped_steps > 0) json["skippedSteps"] = status.skipped_steps;
  json["worldSize"] = status.world_size;
  if (!status.parameter_hash.empty()) json["parameterHash"] = status.parameter_hash;
  if (!status.state_hash.empty()) json["stateHash"] = status.state_hash;
  if (!status.loaded_state_hash.empty()) json["loadedStateHash"] = status.loaded_state_hash;
  if (status.checkpoint) {
    json["checkpoint"] = CheckpointJson(*status.checkpoint);
  }
  if (status.memory) {
    json["memory"] = {{"params", status.memory->params},       {"gradients", status.memory->gradients},
                      {"master", status.memory->master},       {"optimizer", status.memory->optimizer},
                      {"buffers", status.memory->buffers},     {"activationsPeak", status.memory->activations_peak},
                      {"peakTotal", status.memory->peak_total}};
  }
  if (status.rank_memory) {
    json["rankMemory"] = {{"most", status.rank_memory->most_bytes},
                          {"mostRank", status.rank_memory->most_rank},
                          {"least", status.rank_memory->least_bytes}};
  }
  if (status.slowest_rank) {
    json["slowestRank"] = {{"rank", status.slowest_rank->rank}, {"excess", Round9(status.slowest_rank->excess)}};
  }
  if (status.loss_spike) {
    json["lossSpike"] = {{"step", status.loss_spike->step},
                         {"loss", Round9(status.loss_spike->loss)},
                         {"median", Round9(status.loss_spike->median)}};
  }
  if (!status.message.empty()) json["message"] = status.message;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status StatusFile::Update(const TrainerStatus& status, Time now) {
  if (written_ && status.phase == phase_ && now - *written_ < interval_) return {};
  return Write(status, now);
}

Status StatusFile::Write(const TrainerStatus& status, Time now) {
  written_ = now;
  phase_ = status.phase;
  return WriteFileAtomically(path_, ToJson(status) + "\n");
}

}  // namespace trainyard::observe
