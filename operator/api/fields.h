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
#include "operator/api/status_fields.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

template <typename A, Of<Architecture> V>
void Fields(A& a, V& v) {
  a("family", v.family);
  a("layers", v.layers);
  a("hiddenSize", v.hidden_size);
  a("attentionHeads", v.attention_heads);
  a("kvHeads", v.kv_heads);
  a("headSize", v.head_size);
  a("ffnSize", v.ffn_size);
  a("vocabSize", v.vocab_size);
  a("tiedEmbeddings", v.tied_embeddings);
  a("maxPositions", v.max_positions);
}

template <typename A, Of<VolumeDirectory> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a("path", v.path);
}

template <typename A, Of<Adapter> V>
void Fields(A& a, V& v) {
  a("type", v.type);
  a("rank", v.rank);
  a("alpha", v.alpha);
  a("dropout", v.dropout);
  a.NonEmpty("targets", v.targets);
  a("quantizeBase", v.quantize_base);
}

template <typename A, Of<Model> V>
void Fields(A& a, V& v) {
  a.Count("parameters", v.parameters);
  a("architecture", v.architecture);
  a("pretrained", v.pretrained);
  a("adapter", v.adapter);
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

template <typename A, Of<Sample> V>
void Fields(A& a, V& v) {
  a("prompt", v.prompt);
  a("tokens", v.tokens);
  a("temperature", v.temperature);
}

template <typename A, Of<Evaluation> V>
void Fields(A& a, V& v) {
  a("everySteps", v.every_steps);
  a("batches", v.batches);
  a("sample", v.sample);
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
  a("offload", v.offload);
  a.NonEmpty("offloadVolume", v.offload_volume);
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

template <typename A, Of<VerifyCheckpoints> V>
void Fields(A& a, V& v) {
  a("afterSave", v.after_save);
  a("everyHours", v.every_hours);
}

template <typename A, Of<ResumeFrom> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a("path", v.path);
  a("step", v.step);
  a("weightsOnly", v.weights_only);
}

template <typename A, Of<Checkpoint> V>
void Fields(A& a, V& v) {
  a("volume", v.volume);
  a.NonEmpty("path", v.path);
  a.OptionalGroup("every", v.every_steps || v.every_minutes, [&](auto& every) {
    every("steps", v.every_steps);
    every("minutes", v.every_minutes);
  });
  a("keepLast", v.keep_last);
  a("keepEverySteps", v.keep_every_steps);
  a("verify", v.verify);
  a("resume", v.resume);
  a("resumeStep", v.resume_step);
  a("resumeFrom", v.resume_from);
  a("onDelete", v.on_delete);
  a("exportOnSuccess", v.export_on_success);
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
  a("finalizers", v.finalizers);
}

}  // namespace trainyard::api
