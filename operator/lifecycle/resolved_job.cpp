#include "operator/lifecycle/resolved_job.h"

#include <optional>
#include <string>
#include <vector>

#include "operator/api/defaults.h"
#include "operator/api/names.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/scaling.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

using nlohmann::json;

std::string Name(auto value) { return std::string(api::ToString(value)); }

json DataPart(const api::Data& data) {
  json train = json::array(), validation = json::array();
  for (const api::TrainFile& file : data.train) {
    train.push_back({{"volume", file.volume}, {"path", file.path}});
    if (file.weight) train.back()["weight"] = *file.weight;
  }
  for (const api::DataFile& file : data.validation) {
    validation.push_back({{"volume", file.volume}, {"path", file.path}});
  }
  json out = {{"format", Name(data.format)}, {"train", std::move(train)}, {"validation", std::move(validation)}};
  if (data.document_separator) out["documentSeparator"] = *data.document_separator;
  return out;
}

json SizesPart(const api::Architecture& a) {
  json out = {{"family", Name(a.family)},
              {"layers", a.layers},
              {"hiddenSize", a.hidden_size},
              {"attentionHeads", a.attention_heads},
              {"kvHeads", a.kv_heads},
              {"ffnSize", a.ffn_size},
              {"vocabSize", a.vocab_size},
              {"tiedEmbeddings", a.tied_embeddings},
              {"maxPositions", a.max_positions},
              // Not in the API yet: the constants of Llama 2 and GPT-2.
              {"normEpsilon", 1e-5}};
  if (a.family != api::Family::kGpt2) out["ropeTheta"] = 10000.0;
  if (a.head_size > 0) out["headSize"] = a.head_size;
  return out;
}

json AdapterPart(const api::Adapter& a) {
  json out = {{"type", Name(a.type)},
              {"rank", a.rank},
              {"alpha", a.alpha},
              {"dropout", a.dropout},
              {"quantizeBase", Name(a.quantize_base)}};
  if (!a.targets.empty()) out["targets"] = a.targets;
  return out;
}

// Of a model to start from the trainer reads the details in its config.json; it compares the sizes where there are
// some.
json ModelPart(const api::Model& model) {
  json out = model.architecture ? SizesPart(*model.architecture) : json::object();
  if (const auto& from = model.pretrained) out["pretrained"] = {{"volume", from->volume}, {"path", from->path}};
  if (model.adapter) out["adapter"] = AdapterPart(*model.adapter);
  return out;
}

// Keys that an optimizer or a schedule does not read are left out: to a trainer of before they existed, every other job
// reads as it always did.
json OptimizerPart(const api::Optimizer& o) {
  json out = {{"name", Name(o.name)}, {"learningRate", o.learning_rate}, {"weightDecay", o.weight_decay}};
  switch (o.name) {
    case api::OptimizerKind::kAdamW:
    case api::OptimizerKind::kAdamW8bit:
      out["betas"] = o.betas;
      out["epsilon"] = o.epsilon;
      break;
    case api::OptimizerKind::kSgd:
      out["momentum"] = o.momentum;
      out["nesterov"] = o.nesterov;
      break;
    case api::OptimizerKind::kAdafactor:
      break;
  }
  return out;
}

json SchedulePart(const api::Training& t) {
  const api::Schedule& s = t.schedule;
  json out = {
      {"type", Name(s.type)}, {"warmupSteps", s.warmup_steps}, {"minLearningRateRatio", s.min_learning_rate_ratio}};
  if (s.type == api::ScheduleType::kWarmupStableDecay) {
    out["decaySteps"] = api::DecaySteps(t);
    out["decayShape"] = Name(s.decay_shape);
  }
  return out;
}

json EvaluationPart(const api::Evaluation& e) {
  json out = {{"everySteps", e.every_steps}, {"batches", e.batches}};
  if (e.sample) {
    out["sample"] = {
        {"prompt", e.sample->prompt}, {"tokens", e.sample->tokens}, {"temperature", e.sample->temperature}};
  }
  return out;
}

// What is not asked for is left out, as above.
json TrainingPart(const api::Training& t, const std::optional<api::Profile>& profile, api::DeviceKind device,
                  const api::PlanStatus& plan) {
  const int64_t micro_batch = plan.micro_batch_size > 0 ? plan.micro_batch_size : t.micro_batch_size;
  json out{{"device", Name(device)},
           {"sequenceLength", t.sequence_length},
           {"globalBatchSize", t.global_batch_size},
           {"microBatchSize", micro_batch},
           {"steps", t.steps},
           {"precision", Name(t.precision)},
           {"optimizer", OptimizerPart(t.optimizer)},
           {"schedule", SchedulePart(t)},
           {"gradientClipNorm", t.gradient_clip_norm},
           {"evaluation", EvaluationPart(t.evaluation)},
           {"seed", t.seed}};
  if (plan.activation_checkpointing != "" && plan.activation_checkpointing != "None") {
    out["activationCheckpointing"] = plan.activation_checkpointing;
  }
  if (t.on_non_finite_loss != api::NonFiniteLoss::kStop) out["onNonFiniteLoss"] = Name(t.on_non_finite_loss);
  if (t.determinism != api::Determinism::kNone) out["determinism"] = Name(t.determinism);
  if (profile) {
    out["profile"] = {{"fromStep", profile->from_step}, {"steps", profile->steps}};
    if (!profile->volume.empty()) {
      out["profile"]["volume"] = profile->volume;
      out["profile"]["path"] = profile->path;
    }
  }
  return out;
}

// What one GPU can do at most in the job's precision, for the utilisation that the trainer reports.
double PeakFlops(const api::PlanStatus& plan, api::Precision precision) {
  const sizing::GpuProduct* product = sizing::Catalogue::Default()->Find(plan.product);
  if (product == nullptr) return 0;
  return product->bf16_tflops * 1e12 * sizing::PeakShare(precision);
}

json ObservePart(const api::Spec& spec, api::DeviceKind device, const api::PlanStatus& plan) {
  json out = json::object();
  if (const auto& board = spec.observe.tensor_board) {
    out["tensorboard"] = {{"volume", board->volume}, {"path", board->path}};
  }
  const double peak = device == api::DeviceKind::kCuda ? PeakFlops(plan, spec.training.precision) : 0;
  if (peak > 0) out["peakFlops"] = peak;
  return out;
}

// What is not asked for is left out, as above. Where no cadence is, the trainer finds one from what a save costs and
// how often this attempt is expected to fail, which its claim has frozen.
json CheckpointPart(const api::Checkpoint& c, const std::optional<api::CheckpointStatus>& status) {
  json out = {{"volume", c.volume},      {"path", c.path},           {"everySteps", c.every_steps.value_or(0)},
              {"keepLast", c.keep_last}, {"resume", Name(c.resume)}, {"resumeStep", c.resume_step}};
  if (c.every_minutes) out["everySeconds"] = *c.every_minutes * 60;
  if (!c.every_steps && !c.every_minutes && status && status->mean_failure_hours) {
    out["meanSecondsBetweenFailures"] = *status->mean_failure_hours * 3600;
    // What an earlier attempt measured, so that this one does not begin in ignorance.
    if (status->cost_seconds) {
      out["costSeconds"] = *status->cost_seconds;
      out["saveSeconds"] = status->seconds;
    }
  }
  if (c.keep_every_steps > 0) out["keepEverySteps"] = c.keep_every_steps;
  if (c.verify && c.verify->after_save) out["verifyAfterSave"] = true;
  if (c.verify && c.verify->every_hours > 0) out["verifyEveryHours"] = c.verify->every_hours;
  if (const auto& from = c.resume_from) {
    out["resumeFrom"] = {
        {"volume", from->volume}, {"path", from->path}, {"step", from->step}, {"weightsOnly", from->weights_only}};
  }
  if (const auto& place = c.export_on_success) {
    out["exportOnSuccess"] = {{"volume", place->volume}, {"path", place->path}};
  }
  return out;
}

}  // namespace

Result<api::DeviceKind> ResolveDevice(api::DeviceKind wanted, const std::string& product) {
  bool simulated = product == sizing::kSimulatedProduct;
  if (wanted == api::DeviceKind::kCuda && simulated) {
    return Fail(ErrorCode::kInvalidArgument,
                "spec.training.device: CUDA is asked for, but the nodes are simulated and run on the CPU; use Auto or "
                "CPU, or a cluster with GPUs");
  }
  if (wanted == api::DeviceKind::kCpu || simulated) return api::DeviceKind::kCpu;
  return api::DeviceKind::kCuda;
}

json ResolvedJob(const api::TrainingJob& job, const api::PlanStatus& plan) {
  const api::Spec& spec = job.spec;
  // A plan with CUDA on simulated nodes never gets this far (JudgePlan).
  api::DeviceKind device = ResolveDevice(spec.training.device, plan.product).value_or(api::DeviceKind::kCpu);
  json out = {{"contract", contract::kVersion},
              {"job", {{"namespace", job.meta.ns}, {"name", job.meta.name}, {"uid", job.meta.uid}}},
              {"training", TrainingPart(spec.training, spec.observe.profile, device, plan)},
              {"parallelism", {{"strategy", plan.strategy}}}};
  if (plan.gradient_reduction == "LastMicroBatch") {
    out["parallelism"]["gradientReduction"] = plan.gradient_reduction;
  }
  if (plan.offload == "CPU" || plan.offload == "NVMe") {
    out["parallelism"]["offload"] = plan.offload;
    if (plan.offload == "NVMe") out["parallelism"]["offloadVolume"] = spec.parallelism.offload_volume;
  }
  if (json observe = ObservePart(spec, device, plan); !observe.empty()) out["observe"] = std::move(observe);
  if (spec.model.architecture || spec.model.pretrained) out["model"] = ModelPart(spec.model);
  if (spec.data) out["data"] = DataPart(*spec.data);
  if (spec.checkpoint) out["checkpoint"] = CheckpointPart(*spec.checkpoint, job.status.checkpoint);
  return out;
}

}  // namespace trainyard::lifecycle
