// The fields of a TrainingJob, listed once: JsonReader and JsonWriter both walk these lists, so that reading and
// writing cannot drift apart. Private to the room. Thread-safety: pure functions.
//
// An archive A offers: a(name, value) for numbers, flags, strings, enums, lists, maps, optionals and structs listed
// here; a.Group(name, body) for an object that has no struct of its own; a.OptionalGroup(name, present, body), written
// only if `present`; a.Presence(name, flag) for an empty object whose presence is the flag; a.Count(name, text) for
// int-or-string; a.NonEmpty(name, value) for a string or list that means something else when it is absent, so that an
// empty one is an error; a.PreciseTime(name, time) for a time with milliseconds.
#pragma once

#include "operator/api/pod_fields.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

template <typename A, Of<Architecture> V>
void Fields(A& a, V& v) {
  a("family", v.family);
  a("layers", v.layers);
  a("hiddenSize", v.hidden_size);
  a("attentionHeads", v.attention_heads);
  a("kvHeads", v.kv_heads);
  a("ffnSize", v.ffn_size);
  a("vocabSize", v.vocab_size);
  a("tiedEmbeddings", v.tied_embeddings);
  a("maxPositions", v.max_positions);
}

template <typename A, Of<Model> V>
void Fields(A& a, V& v) {
  a.Count("parameters", v.parameters);
  a("architecture", v.architecture);
}

template <typename A, Of<DataFile> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a("path", v.path);
}

template <typename A, Of<TrainFile> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a("path", v.path);
  a("weight", v.weight);
}

template <typename A, Of<Data> V>
void Fields(A& a, V& v) {
  a("format", v.format);
  a("train", v.train);
  a("validation", v.validation);
  a("documentSeparator", v.document_separator);
}

template <typename A, Of<Optimizer> V>
void Fields(A& a, V& v) {
  a("name", v.name);
  a("learningRate", v.learning_rate);
  a("betas", v.betas);
  a("epsilon", v.epsilon);
  a("weightDecay", v.weight_decay);
  a("momentum", v.momentum);
  a("nesterov", v.nesterov);
}

template <typename A, Of<Schedule> V>
void Fields(A& a, V& v) {
  a("type", v.type);
  a("warmupSteps", v.warmup_steps);
  a("minLearningRateRatio", v.min_learning_rate_ratio);
  a("decaySteps", v.decay_steps);
  a("decayShape", v.decay_shape);
}

template <typename A, Of<Evaluation> V>
void Fields(A& a, V& v) {
  a("everySteps", v.every_steps);
  a("batches", v.batches);
}

template <typename A, Of<Training> V>
void Fields(A& a, V& v) {
  a("device", v.device);
  a("sequenceLength", v.sequence_length);
  a("globalBatchSize", v.global_batch_size);
  a("microBatchSize", v.micro_batch_size);
  a("steps", v.steps);
  a("precision", v.precision);
  a("optimizer", v.optimizer);
  a("schedule", v.schedule);
  a("gradientClipNorm", v.gradient_clip_norm);
  a("onNonFiniteLoss", v.on_non_finite_loss);
  a("evaluation", v.evaluation);
  a("activationCheckpointing", v.activation_checkpointing);
  a("seed", v.seed);
  a("determinism", v.determinism);
}

template <typename A, Of<Parallelism> V>
void Fields(A& a, V& v) {
  a("strategy", v.strategy);
}

template <typename A, Of<Gpus> V>
void Fields(A& a, V& v) {
  a("count", v.count);
  a("minCount", v.min_count);
  a("maxCount", v.max_count);
  a("perNode", v.per_node);
  a("products", v.products);
  a("nvlink", v.nvlink);
  a.OptionalGroup("topology", !v.topology.level.empty(), [&](auto& topology) {
    topology("level", v.topology.level);
    topology("mode", v.topology.mode);
  });
  a("goal", v.goal);
  a("allowOvercommit", v.allow_overcommit);
}

template <typename A, Of<Budget> V>
void Fields(A& a, V& v) {
  a("maxHours", v.max_hours);
  a("maxCost", v.max_cost);
}

template <typename A, Of<Checkpoint> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a.NonEmpty("path", v.path);
  a.Group("every", [&](auto& every) { every("steps", v.every_steps); });
  a("keepLast", v.keep_last);
  a("resume", v.resume);
  a("resumeStep", v.resume_step);
}

template <typename A, Of<VolumeDirectory> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a("path", v.path);
}

template <typename A, Of<Profile> V>
void Fields(A& a, V& v) {
  a("fromStep", v.from_step);
  a("steps", v.steps);
  a.NonEmpty("volume", v.volume);
  a.NonEmpty("path", v.path);
}

template <typename A, Of<Observe> V>
void Fields(A& a, V& v) {
  a("tensorBoard", v.tensor_board);
  a("profile", v.profile);
}

template <typename A, Of<Recovery> V>
void Fields(A& a, V& v) {
  a.Group("maxRestarts", [&](auto& restarts) {
    restarts("user", v.max_user_restarts);
    restarts("infrastructure", v.max_infrastructure_restarts);
  });
  a("maxGraceSeconds", v.max_grace_seconds);
}

template <typename A, Of<Volume> V>
void Fields(A& a, V& v) {
  a("name", v.name);
  a.OptionalGroup("persistentVolumeClaim", !v.claim_name.empty(),
                  [&](auto& claim) { claim.NonEmpty("claimName", v.claim_name); });
  a.OptionalGroup("hostPath", !v.host_path.empty(), [&](auto& host) { host.NonEmpty("path", v.host_path); });
  a.Presence("emptyDir", v.empty_dir);
}

template <typename A, Of<EnvVar> V>
void Fields(A& a, V& v) {
  a("name", v.name);
  a("value", v.value);
}

template <typename A, Of<Spec> V>
void Fields(A& a, V& v) {
  a("model", v.model);
  a("data", v.data);
  a("training", v.training);
  a("parallelism", v.parallelism);
  a("gpus", v.gpus);
  a("budget", v.budget);
  a("checkpoint", v.checkpoint);
  a("observe", v.observe);
  a("recovery", v.recovery);
  a("suspend", v.suspend);
  a("planOnly", v.plan_only);
  a.NonEmpty("managedBy", v.managed_by);
  a.NonEmpty("priorityClassName", v.priority_class_name);
  a.NonEmpty("image", v.image);
  a.NonEmpty("command", v.command);
  a.NonEmpty("args", v.args);
  a("env", v.env);
  a("volumes", v.volumes);
  a.OptionalGroup("podTemplate", !v.pod_template.Empty(), [&](auto& pods) { Fields(pods, v.pod_template); });
}

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
  a("measured", v.measured);
  a("advice", v.advice);
}

template <typename A, Of<Meta> V>
void Fields(A& a, V& v) {
  a("name", v.name);
  a("namespace", v.ns);
  a("uid", v.uid);
  a("resourceVersion", v.resource_version);
  a("generation", v.generation);
  a("creationTimestamp", v.creation_time);
  a("deletionTimestamp", v.deletion_time);
  a("labels", v.labels);
  a("annotations", v.annotations);
}

}  // namespace trainyard::api
