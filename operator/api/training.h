// spec.training of a TrainingJob: batches, precision, optimizer, schedule, evaluation, what is kept of
// activations, what is promised of the bits. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::api {

enum class DeviceKind { kAuto, kCpu, kCuda };
enum class Precision { kBf16, kFp32 };
enum class OptimizerKind { kAdamW, kAdamW8bit, kAdafactor, kSgd };
enum class ScheduleType { kCosine, kLinear, kConstant, kWarmupStableDecay };
enum class DecayShape { kLinear, kCosine, kSqrt };
enum class ActivationCheckpointing { kAuto, kNone, kSelective, kFull };
enum class NonFiniteLoss { kStop, kSkipStep };
enum class Determinism { kNone, kLayout, kWorldSize };

struct Optimizer {
  OptimizerKind name = OptimizerKind::kAdamW;
  double learning_rate = 3e-4;
  std::vector<double> betas = {0.9, 0.95};  // of AdamW and AdamW8bit
  double epsilon = 1e-8;                    // of AdamW and AdamW8bit
  double weight_decay = 0.1;
  double momentum = 0;    // of SGD; 0: none, and no state
  bool nesterov = false;  // of SGD, with momentum
};

struct Schedule {
  ScheduleType type = ScheduleType::kCosine;
  int64_t warmup_steps = 0;
  double min_learning_rate_ratio = 0.1;
  int64_t decay_steps = 0;                       // of WarmupStableDecay; 0: see DecaySteps
  DecayShape decay_shape = DecayShape::kLinear;  // of WarmupStableDecay
};

// What the model says to a prompt, at each evaluation.
struct Sample {
  std::string prompt;
  int64_t tokens = 64;     // at most so many
  double temperature = 0;  // 0: always the likeliest token
};

struct Evaluation {
  int64_t every_steps = 0;  // 0: at the start and the end only
  int64_t batches = 50;     // micro-batches of validation data per evaluation
  std::optional<Sample> sample;
};

struct Training {
  DeviceKind device = DeviceKind::kAuto;
  int64_t sequence_length = 4096;
  int64_t global_batch_size = 512;  // sequences per optimizer step, the same at every GPU count
  int64_t micro_batch_size = 0;     // 0: chosen by the plan
  int64_t steps = 1000;
  Precision precision = Precision::kBf16;
  Optimizer optimizer;
  Schedule schedule;
  double gradient_clip_norm = 1.0;  // 0: no clipping
  NonFiniteLoss on_non_finite_loss = NonFiniteLoss::kStop;
  Evaluation evaluation;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kAuto;
  int64_t seed = 1234;
  Determinism determinism = Determinism::kNone;
};

}  // namespace trainyard::api
