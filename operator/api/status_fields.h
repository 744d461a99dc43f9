// The fields of a TrainingJob's status, listed once; see fields.h. Private to the room. Thread-safety: pure functions.
#pragma once

#include "operator/api/pod_fields.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

template <typename A, Of<Condition> V>
void Fields(A& a, V& v) {
  a("type", v.type);
  a("status", v.status);
  a("reason", v.reason);
  a("message", v.message);
  a("observedGeneration", v.observed_generation);
  a("lastTransitionTime", v.last_transition_time);
}

template <typename A, Of<PlanBytes> V>
void Fields(A& a, V& v) {
  a("weights", v.weights);
  a("gradients", v.gradients);
  a("master", v.master);
  a("optimizer", v.optimizer);
  a("activations", v.activations);
  a("logits", v.logits);
  a("buffers", v.buffers);
  a("overhead", v.overhead);
}

template <typename A, Of<PlanCorrections> V>
void Fields(A& a, V& v) {
  a("states", v.states);
  a("activations", v.activations);
  a("buffers", v.buffers);
  a("stepSeconds", v.step_seconds);
}

template <typename A, Of<PlanAlternative> V>
void Fields(A& a, V& v) {
  a("product", v.product);
  a("gpus", v.gpus);
  a("method", v.method);
  a("hours", v.hours);
  a("cost", v.cost);
  a("why", v.why);
}

template <typename A, Of<PlanStatus> V>
void Fields(A& a, V& v) {
  a("strategy", v.strategy);
  a("gpus", v.gpus);
  a("perNode", v.per_node);
  a("product", v.product);
  a("microBatchSize", v.micro_batch_size);
  a("accumulation", v.accumulation);
  a("parameters", v.parameters);
  a("bytesPerGPU", v.bytes_per_gpu);
  a("capacityBytes", v.capacity_bytes);
  a("checkpointBytes", v.checkpoint_bytes);
  a("why", v.why);
  a("generation", v.generation);
  a("activationCheckpointing", v.activation_checkpointing);
  a("gradientReduction", v.gradient_reduction);
  a("offload", v.offload);
  a("hostBytesPerGPU", v.host_bytes_per_gpu);
  a("diskBytesPerGPU", v.disk_bytes_per_gpu);
  a("perGPU", v.bytes);
  a("efficiency", v.efficiency);
  a("expectedEfficiency", v.expected_efficiency);
  a("stepSeconds", v.step_seconds);
  a("tokensPerSecond", v.tokens_per_second);
  a("hours", v.hours);
  a("cost", v.cost);
  a("currency", v.currency);
  a("alternatives", v.alternatives);
  a("advice", v.advice);
  a("corrections", v.corrections);
}

template <typename A, Of<PlacedNode> V>
void Fields(A& a, V& v) {
  a("node", v.node);
  a("gpus", v.gpus);
}

template <typename A, Of<PlacedDomain> V>
void Fields(A& a, V& v) {
  a("path", v.path);
  a("nodes", v.nodes);
}

template <typename A, Of<PlacementStatus> V>
void Fields(A& a, V& v) {
  a("nodes", v.nodes);
  a("domain", v.domain);
  a("domains", v.domains);
  a("fabric", v.fabric);
  a("environment", v.environment);
  a("resources", v.resources);
}

template <typename A, Of<TrainerStatus> V>
void Fields(A& a, V& v) {
  a("image", v.image);
  a("cpuMilliPerGPU", v.cpu_milli_per_gpu);
  a("memoryBytesPerGPU", v.memory_bytes_per_gpu);
  a("generation", v.generation);
}

template <typename A, Of<StopStatus> V>
void Fields(A& a, V& v) {
  a("reason", v.reason);
  a("attempt", v.attempt);
  a.PreciseTime("due", v.due);
}

template <typename A, Of<Restarts> V>
void Fields(A& a, V& v) {
  a("user", v.user);
  a("infrastructure", v.infrastructure);
}

template <typename A, Of<MemoryStatus> V>
void Fields(A& a, V& v) {
  a("params", v.params);
  a("gradients", v.gradients);
  a("master", v.master);
  a("optimizer", v.optimizer);
  a("buffers", v.buffers);
  a("activationsPeak", v.activations_peak);
  a("peakTotal", v.peak_total);
}

template <typename A, Of<StepTime> V>
void Fields(A& a, V& v) {
  a("data", v.data);
  a("compute", v.compute);
  a("communication", v.communication);
  a("optimizer", v.optimizer);
  a("checkpoint", v.checkpoint);
}

template <typename A, Of<LossSpike> V>
void Fields(A& a, V& v) {
  a("step", v.step);
  a("loss", v.loss);
  a("median", v.median);
}

template <typename A, Of<RankMemory> V>
void Fields(A& a, V& v) {
  a("most", v.most);
  a("mostRank", v.most_rank);
  a("least", v.least);
}

template <typename A, Of<Progress> V>
void Fields(A& a, V& v) {
  a("step", v.step);
  a("steps", v.steps);
  a("loss", v.loss);
  a("validationLoss", v.validation_loss);
  a("initialValidationLoss", v.initial_validation_loss);
  a("validationPerplexity", v.validation_perplexity);
  a("tokensPerSecond", v.tokens_per_second);
  a("mfu", v.mfu);
  a("stepSeconds", v.step_seconds);
  a("stepTime", v.step_time);
  a("stepGPUs", v.step_gpus);
  a("trainerPhase", v.trainer_phase);
  a("resumedFromStep", v.resumed_from_step);
  a("parameterHash", v.parameter_hash);
  a("stateHash", v.state_hash);
  a("loadedStateHash", v.loaded_state_hash);
  a("loadSeconds", v.load_seconds);
  a("loadBytes", v.load_bytes);
  a("memory", v.memory);
  a("rankMemory", v.rank_memory);
  a("lossSpike", v.loss_spike);
  a("skippedSteps", v.skipped_steps);
}

template <typename A, Of<CheckpointStatus> V>
void Fields(A& a, V& v) {
  a("step", v.step);
  a("bytes", v.bytes);
  a("seconds", v.seconds);
  a("time", v.time);
  a("stallSeconds", v.stall_seconds);
  a("writeSeconds", v.write_seconds);
  a("verifySeconds", v.verify_seconds);
  a("verified", v.verified);
  a("damage", v.damage);
  a("everySeconds", v.every_seconds);
  a("costSeconds", v.cost_seconds);
  a("nextStep", v.next_step);
  a("freeBytes", v.free_bytes);
  a("directoryBytes", v.directory_bytes);
  a("failures", v.failures);
  a("failure", v.failure);
  a("meanHoursBetweenFailures", v.mean_failure_hours);
  a("failureEstimate", v.failure_source);
  a("fullAt", v.full_at);
}

template <typename A, Of<Exposure> V>
void Fields(A& a, V& v) {
  a("gpuHours", v.gpu_hours);
  a("failures", v.failures);
}

template <typename A, Of<ResizeSeconds> V>
void Fields(A& a, V& v) {
  a("place", v.place);
  a("drain", v.drain);
  a("save", v.save);
  a("start", v.start);
  a("load", v.load);
  a("firstStep", v.first_step);
}

template <typename A, Of<ResizeStatus> V>
void Fields(A& a, V& v) {
  a("from", v.from);
  a("to", v.to);
  a("why", v.why);
  a("attempt", v.attempt);
  a.PreciseTime("wantedAt", v.wanted_at);
  a.PreciseTime("stoppedAt", v.stopped_at);
  a.PreciseTime("goneAt", v.gone_at);
  a.PreciseTime("loadedAt", v.loaded_at);
  a("seconds", v.seconds);
  a("bytesReadPerRank", v.bytes_read_per_rank);
  a("savedHash", v.saved_hash);
  a("loadedHash", v.loaded_hash);
}

template <typename A, Of<JobStatus> V>
void Fields(A& a, V& v) {
  a("phase", v.phase);
  a("reason", v.reason);
  a("observedGeneration", v.observed_generation);
  a("conditions", v.conditions);
  a("gpus", v.gpus);
  a("selector", v.selector);
  a("plan", v.plan);
  a("placement", v.placement);
  a("trainer", v.trainer);
  a("attempt", v.attempt);
  a("started", v.started);
  a("stop", v.stop);
  a("undoneGeneration", v.undone_generation);
  a("restarts", v.restarts);
  a("consecutiveFailures", v.consecutive_failures);
  a.PreciseTime("retryAfter", v.retry_after);
  a.PreciseTime("placingSince", v.placing_since);
  a.PreciseTime("ungatedAt", v.ungated_at);
  a.PreciseTime("toldAt", v.told_at);
  a("startTime", v.start_time);
  a("completionTime", v.completion_time);
  a("excludedNodes", v.excluded_nodes);
  a("excludedAt", v.excluded_at);
  a("progress", v.progress);
  a.PreciseTime("progressTime", v.progress_time);
  a("checkpoint", v.checkpoint);
  a("exposure", v.exposure);
  a("resize", v.resize);
  a.PreciseTime("removingSince", v.removing_since);
  a("measured", v.measured);
  a("advice", v.advice);
}

}  // namespace trainyard::api
