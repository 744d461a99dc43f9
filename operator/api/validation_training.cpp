#include "operator/api/validation_training.h"

#include <algorithm>
#include <string>

#include "operator/api/names.h"

namespace trainyard::api {
namespace {

const std::string kPrefix = "spec.training.";

// From 0 to below 1.
void CheckFraction(Checks& c, const std::string& path, double value) {
  c.Range(path, value, 0, 1);
  if (value == 1) c.Report(path, "1.0 must be less than 1.0");
}

// A field of another optimizer is a mistake wherever it can be seen: at another value than its default.
void CheckOptimizer(Checks& c, const Optimizer& o) {
  const std::string p = kPrefix + "optimizer.";
  const Optimizer standard;
  const auto of_another = [&](const char* field, bool set) {
    if (set) c.Report(p + field, "has no meaning with " + std::string(ToString(o.name)) + "; leave it out");
  };
  c.Range(p + "learningRate", o.learning_rate, 0, 10, true);
  if (o.betas.size() != 2) {
    c.Report(p + "betas", "must have 2 numbers, has " + std::to_string(o.betas.size()));
  }
  for (size_t i = 0; i < std::min<size_t>(o.betas.size(), 2); ++i) CheckFraction(c, At(p + "betas", i), o.betas[i]);
  c.Range(p + "epsilon", o.epsilon, 0, 1, true);
  c.Range(p + "weightDecay", o.weight_decay, 0, 10);
  CheckFraction(c, p + "momentum", o.momentum);
  const bool sgd = o.name == OptimizerKind::kSgd;
  of_another("momentum", !sgd && o.momentum > 0 && o.momentum < 1);
  of_another("nesterov", !sgd && o.nesterov);
  if (sgd && o.nesterov && o.momentum == 0) c.Report(p + "nesterov", "needs momentum above 0");
  const bool adam = o.name == OptimizerKind::kAdamW || o.name == OptimizerKind::kAdamW8bit;
  of_another("betas", !adam && o.betas.size() == 2 && o.betas != standard.betas);
  of_another("epsilon", !adam && o.epsilon > 0 && o.epsilon != standard.epsilon);
}

void CheckSchedule(Checks& c, const Schedule& s, int64_t steps) {
  const std::string p = kPrefix + "schedule.";
  c.Range(p + "warmupSteps", s.warmup_steps, 0, kMaxSteps);
  if (s.warmup_steps > steps && steps > 0) {
    c.Report(p + "warmupSteps", std::to_string(s.warmup_steps) + " is more than steps " + std::to_string(steps));
  }
  c.Range(p + "minLearningRateRatio", s.min_learning_rate_ratio, 0, 1);
  c.Range(p + "decaySteps", s.decay_steps, 0, kMaxSteps);
  if (s.type != ScheduleType::kWarmupStableDecay) {
    const std::string problem =
        "has no meaning with " + std::string(ToString(s.type)) + "; set type to WarmupStableDecay or leave it out";
    if (s.decay_steps > 0 && s.decay_steps <= kMaxSteps) c.Report(p + "decaySteps", problem);
    if (s.decay_shape != DecayShape::kLinear) c.Report(p + "decayShape", problem);
  } else if (s.warmup_steps >= 0 && s.warmup_steps <= steps && s.decay_steps > steps - s.warmup_steps &&
             s.decay_steps <= kMaxSteps) {
    c.Report(p + "decaySteps", std::to_string(s.decay_steps) + " after warmupSteps " + std::to_string(s.warmup_steps) +
                                   " is more than steps " + std::to_string(steps));
  }
}

void CheckSample(Checks& c, const Sample& s) {
  const std::string p = kPrefix + "evaluation.sample.";
  if (c.Required(p + "prompt", s.prompt, "a text to go on from")) c.Length(p + "prompt", s.prompt, 4096);
  c.Range(p + "tokens", s.tokens, 1, 4096);
  c.Range(p + "temperature", s.temperature, 0, 10);
}

}  // namespace

void CheckTraining(Checks& c, const Training& t) {
  const std::string& p = kPrefix;
  c.Range(p + "sequenceLength", t.sequence_length, 1, kMaxSequence);
  c.Range(p + "globalBatchSize", t.global_batch_size, 1, 16'777'216);
  c.Range(p + "microBatchSize", t.micro_batch_size, 0, 65'536);
  if (t.micro_batch_size > t.global_batch_size && t.global_batch_size > 0) {
    c.Report(p + "microBatchSize", std::to_string(t.micro_batch_size) + " is more than globalBatchSize " +
                                       std::to_string(t.global_batch_size));
  }
  c.Range(p + "steps", t.steps, 1, kMaxSteps);
  CheckOptimizer(c, t.optimizer);
  CheckSchedule(c, t.schedule, t.steps);
  if (t.optimizer.name == OptimizerKind::kAdafactor && t.determinism == Determinism::kWorldSize) {
    c.Report(p + "determinism",
             "WorldSize cannot be had with Adafactor, whose statistics are floating-point sums over GPUs; use AdamW or "
             "AdamW8bit, or Layout");
  }
  c.Range(p + "gradientClipNorm", t.gradient_clip_norm, 0, 1e6);
  c.Range(p + "evaluation.everySteps", t.evaluation.every_steps, 0, kMaxSteps);
  c.Range(p + "evaluation.batches", t.evaluation.batches, 1, 1'000'000);
  if (t.evaluation.sample) CheckSample(c, *t.evaluation.sample);
  if (t.seed < 0) c.Report(p + "seed", std::to_string(t.seed) + " is less than 0");
}

}  // namespace trainyard::api
