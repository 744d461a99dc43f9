#include "operator/controller/progress_json.h"

#include <cmath>

#include "operator/cluster/json_reader.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {
namespace {

using cluster::JsonReader;
using nlohmann::json;

std::optional<double> Number(const json& status, const char* key, JsonReader& reader) {
  const auto found = status.find(key);
  if (found == status.end() || found->is_null()) return std::nullopt;
  if (!found->is_number()) {
    reader.Problem(key, "must be a number");
    return std::nullopt;
  }
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

api::CheckpointStatus CheckpointFrom(const json& said, JsonReader& reader) {
  const auto number = [&](const char* key) { return Number(said, key, reader); };
  const auto integer = [&](const char* key) { return reader.Integer(said, key); };
  api::CheckpointStatus out;
  out.step = integer("step").value_or(0);
  out.bytes = integer("bytes").value_or(0);
  out.seconds = number("seconds").value_or(0);
  out.time = reader.String(said, "time");
  out.stall_seconds = number("stallSeconds");
  out.write_seconds = number("writeSeconds");
  out.verify_seconds = number("verifySeconds");
  out.damage = reader.String(said, "damage");
  if (said.contains("verified") && !said["verified"].is_null()) out.verified = reader.Bool(said, "verified");
  out.every_seconds = number("everySeconds");
  out.cost_seconds = number("costSeconds");
  out.next_step = integer("nextStep");
  out.free_bytes = integer("freeBytes");
  out.directory_bytes = integer("directoryBytes");
  out.failures = integer("failures");
  out.failure = reader.String(said, "failure");
  return out;
}

}  // namespace

Result<ProgressReport> ProgressFromJson(const json& status, const std::string& job_uid) {
  if (!status.is_object()) return Fail(ErrorCode::kInvalidArgument, "progress: not a JSON object");
  JsonReader reader("progress");
  const int64_t version = reader.Integer(status, "contract").value_or(0);
  if (version != contract::kVersion && version != contract::kVersion - 1) {
    return Fail(ErrorCode::kFailedPrecondition, "progress: contract " + std::to_string(version) +
                                                    " is not known; this operator speaks " +
                                                    std::to_string(contract::kVersion));
  }
  if (const std::string uid = reader.String(status, "jobUid"); uid != job_uid) {
    return Fail(ErrorCode::kFailedPrecondition, "progress: of another job (" + uid + ")");
  }
  ProgressReport report;
  report.attempt = reader.Integer(status, "attempt").value_or(0);
  api::Progress& progress = report.progress;
  progress.step = reader.Integer(status, "step").value_or(0);
  progress.steps = reader.Integer(status, "steps").value_or(0);
  progress.loss = Number(status, "loss", reader);
  progress.validation_loss = Number(status, "validationLoss", reader);
  progress.initial_validation_loss = Number(status, "initialValidationLoss", reader);
  progress.validation_perplexity = Number(status, "validationPerplexity", reader);
  progress.mfu = Number(status, "mfu", reader);
  progress.tokens_per_second = Number(status, "tokensPerSecond", reader);
  progress.step_seconds = Number(status, "stepSeconds", reader);
  progress.trainer_phase = reader.String(status, "phase");
  progress.resumed_from_step = reader.Integer(status, "resumedFromStep");
  progress.parameter_hash = reader.String(status, "parameterHash");
  progress.state_hash = reader.String(status, "stateHash");
  progress.loaded_state_hash = reader.String(status, "loadedStateHash");
  if (const json& restored = reader.Object(status, "restored"); !restored.empty()) {
    progress.load_seconds = Number(restored, "seconds", reader);
    progress.load_bytes = reader.Integer(restored, "mostBytesRead");
    progress.first_step_seconds = Number(restored, "firstStepSeconds", reader);
  }
  progress.skipped_steps = reader.Integer(status, "skippedSteps");
  const api::StepTime time{.data = Number(status, "dataSeconds", reader),
                           .compute = Number(status, "computeSeconds", reader),
                           .communication = Number(status, "communicationSeconds", reader),
                           .optimizer = Number(status, "optimizerSeconds", reader),
                           .checkpoint = Number(status, "checkpointSeconds", reader)};
  if (time.compute) progress.step_time = time;
  if (const json& ranks = reader.Object(status, "rankMemory"); !ranks.empty()) {
    progress.rank_memory = api::RankMemory{.most = reader.Integer(ranks, "most").value_or(0),
                                           .most_rank = reader.Integer(ranks, "mostRank").value_or(0),
                                           .least = reader.Integer(ranks, "least").value_or(0)};
  }
  if (const json& spike = reader.Object(status, "lossSpike"); !spike.empty()) {
    progress.loss_spike = api::LossSpike{.step = reader.Integer(spike, "step").value_or(0),
                                         .loss = Number(spike, "loss", reader).value_or(0),
                                         .median = Number(spike, "median", reader).value_or(0)};
  }
  if (const json& memory = reader.Object(status, "memory"); !memory.empty()) {
    auto bytes = [&](const char* key) { return reader.Integer(memory, key).value_or(0); };
    progress.memory = api::MemoryStatus{.params = bytes("params"),
                                        .gradients = bytes("gradients"),
                                        .master = bytes("master"),
                                        .optimizer = bytes("optimizer"),
                                        .buffers = bytes("buffers"),
                                        .activations_peak = bytes("activationsPeak"),
                                        .peak_total = bytes("peakTotal")};
  }
  if (const json& checkpoint = reader.Object(status, "checkpoint"); !checkpoint.empty()) {
    report.checkpoint = CheckpointFrom(checkpoint, reader);
  }
  if (reader.error()) return Fail(*reader.error());
  return report;
}

}  // namespace trainyard::controller
