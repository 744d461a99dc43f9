// An option in full: its bytes, its times and the reasons for its method.
#include <algorithm>

#include "operator/api/names.h"
#include "operator/sizing/choose.h"
#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

constexpr double kTight = 0.90;  // of what the driver reports

}  // namespace

std::string NameOf(const Method& method) {
  std::string name(method.hybrid ? "HSDP" : api::ToString(method.strategy));
  if (method.checkpointing == Checkpointing::kSelective) name += " with selective activation checkpointing";
  if (method.checkpointing == Checkpointing::kFull) name += " with full activation checkpointing";
  if (method.reduce_once) name += ", gradients reduced once a step";
  if (method.offload == Offload::kCpu) name += ", optimizer on the host";
  if (method.offload == Offload::kNvme) name += ", optimizer on NVMe";
  return name;
}

api::Strategy StrategyOf(const PlanOption& option) {
  return option.strategy == api::Strategy::kFsdp && option.replicas > 1 ? api::Strategy::kHsdp : option.strategy;
}

api::ActivationCheckpointing CheckpointingOf(const PlanOption& option) {
  switch (option.checkpointing) {
    case Checkpointing::kNone:
      return api::ActivationCheckpointing::kNone;
    case Checkpointing::kSelective:
      return api::ActivationCheckpointing::kSelective;
    case Checkpointing::kFull:
      return api::ActivationCheckpointing::kFull;
  }
  return api::ActivationCheckpointing::kAuto;
}

api::OffloadTo OffloadOf(const PlanOption& option) {
  switch (option.offload) {
    case Offload::kNone:
      return api::OffloadTo::kNone;
    case Offload::kCpu:
      return api::OffloadTo::kCpu;
    case Offload::kNvme:
      return api::OffloadTo::kNvme;
  }
  return api::OffloadTo::kNone;
}

std::string MethodOf(const PlanOption& option) {
  return NameOf({.offload = option.offload,
                 .checkpointing = option.checkpointing,
                 .strategy = option.strategy,
                 .hybrid = StrategyOf(option) == api::Strategy::kHsdp,
                 .reduce_once = option.reduce_once});
}

PerGpuBytes Evaluator::BytesAt(const Trial& trial, int64_t micro_batch, int64_t sequence) {
  MemoryInput& in = InputOf(*trial.candidate);
  Set(in, MethodOf(trial), trial.batch.ranks, micro_batch);
  in.sequence = sequence;
  return Estimate(in, trial.candidate->capacity);
}

PlanOption Evaluator::OptionOf(const Trial& given) {
  Trial trial = given;
  const Candidate& candidate = *trial.candidate;
  const Method& method = MethodOf(trial);
  if (!trial.fits) AddTime(method, trial);
  PlanOption o;
  o.product = candidate.product->name;
  o.gpus = trial.gpus;
  o.per_node = trial.per_node;
  o.strategy = method.strategy;
  o.shard_ranks = method.shard_ranks;
  o.replicas = trial.batch.ranks / method.shard_ranks;
  o.checkpointing = method.checkpointing;
  o.offload = method.offload;
  o.reduce_once = method.reduce_once;
  o.micro_batch = trial.batch.micro_batch;
  o.accumulation = trial.batch.accumulation;
  o.effective_batch = trial.batch.effective;
  o.padding = trial.batch.padding;
  o.memory_bytes = candidate.memory_mib * 1024 * 1024;
  MemoryInput& in = InputOf(candidate);
  Set(in, method, trial.batch.ranks, trial.batch.micro_batch);
  o.bytes = Estimate(in, candidate.capacity);
  o.host = EstimateHost(in, request_.keep_last);
  o.checkpoint_bytes = CheckpointBytes(in);
  o.fits = o.bytes.Fits();
  o.tight = o.fits && static_cast<double>(o.bytes.total) > kTight * static_cast<double>(o.memory_bytes);
  o.state_fits = static_cast<double>(StateBytes()) / static_cast<double>(o.gpus) <= static_cast<double>(o.memory_bytes);
  o.mfu = trial.mfu;
  o.efficiency = trial.planned;
  o.physical_efficiency = trial.physical;
  o.speedup = static_cast<double>(trial.gpus) * trial.planned;
  if (trial.step_seconds > 0) {
    o.step_seconds = trial.step_seconds;
    o.tokens_per_second =
        static_cast<double>(trial.batch.effective) * static_cast<double>(request_.sequence_length) / trial.step_seconds;
  }
  o.hours = trial.hours;
  if (trial.hours && candidate.price) o.cost = Cost(*trial.hours, trial.gpus, *candidate.price);

  std::string large, slow;  // simpler methods, and why they are not taken
  for (const Trial& other : All(candidate, trial.gpus)) {
    if (other.method == trial.method) break;
    if (!other.fits) large += (large.empty() ? "" : ", ") + NameOf(MethodOf(other)) + " " + Gib(other.bytes);
    if (!other.fits || !o.fits || other.step_seconds <= 0) continue;
    slow += (slow.empty() ? "" : ", ") + NameOf(MethodOf(other)) + " by " + Percent(other.pace / trial.pace - 1);
  }
  const std::string usable = Gib(candidate.capacity) + " usable";
  if (!o.fits) {
    o.why = "does not fit: " + NameOf(method) + " needs " + Gib(o.bytes.total) + " of " + usable + " per GPU, " +
            Gib(o.bytes.total - candidate.capacity) + " too much";
    return o;
  }
  o.why = NameOf(method) + " needs " + Gib(o.bytes.total) + " of " + usable;
  if (!large.empty()) o.why += "; too large: " + large;
  if (!slow.empty()) o.why += "; slower: " + slow;
  return o;
}

int64_t Evaluator::StateBytes() {
  if (request_.adapter.type == AdapterType::kNone && request_.optimizer == Optimizer::kAdamW) {
    return ReferenceStateBytes(request_.shape.parameters);
  }
  Set(gpu_, Method{}, 1, 1);
  gpu_.tensor_parallel = gpu_.pipeline_parallel = 1;
  const double bytes = WeightBytes(gpu_) + GradientBytes(gpu_) + MasterBytes(gpu_) + OptimizerBytes(gpu_);
  gpu_.tensor_parallel = request_.tensor_parallel;
  gpu_.pipeline_parallel = request_.pipeline_parallel;
  return static_cast<int64_t>(std::min(bytes, 1e18));
}

std::string NeedOf(const PlanOption& option) {
  return Gib(option.bytes.total) + " of " + Gib(option.memory_bytes) + " per GPU";
}

}  // namespace trainyard::sizing
