// status.progress of a TrainingJob: what rank 0 says of itself and of all ranks. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainyard::api {

// Most bytes that rank 0's trainer held so far, by what they are for.
struct MemoryStatus {
  int64_t params = 0;
  int64_t gradients = 0;
  int64_t master = 0;
  int64_t optimizer = 0;
  int64_t buffers = 0;
  int64_t activations_peak = 0;
  int64_t peak_total = 0;

  bool operator==(const MemoryStatus&) const = default;
};

// Seconds of rank 0's last step by what they went into; communication is what nothing hid.
struct StepTime {
  std::optional<double> data;
  std::optional<double> compute;
  std::optional<double> communication;
  std::optional<double> optimizer;
  std::optional<double> checkpoint;  // before the step

  bool operator==(const StepTime&) const = default;
};

// A loss far above those before it.
struct LossSpike {
  int64_t step = 0;
  double loss = 0;
  double median = 0;

  bool operator==(const LossSpike&) const = default;
};

// Most resident bytes of a rank: of the rank that has most, and of the one that has least.
struct RankMemory {
  int64_t most = 0;
  int64_t most_rank = 0;
  int64_t least = 0;

  bool operator==(const RankMemory&) const = default;
};

struct Progress {
  int64_t step = 0;
  int64_t steps = 0;
  std::optional<double> loss;
  std::optional<double> validation_loss;
  std::optional<double> initial_validation_loss;
  std::optional<double> validation_perplexity;
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;
  std::optional<double> step_seconds;
  std::optional<StepTime> step_time;
  std::optional<int64_t> step_gpus;  // on which step_seconds was measured
  std::string trainer_phase;         // contract::phase
  std::optional<int64_t> resumed_from_step;
  std::string parameter_hash;
  std::string state_hash;                    // of parameters and optimizer state, when this attempt stopped
  std::string loaded_state_hash;             // the same, when it had loaded its checkpoint
  std::optional<double> load_seconds;        // that the load took
  std::optional<int64_t> load_bytes;         // that the rank which read most read
  std::optional<double> first_step_seconds;  // from the end of the load to the end of the first step
  std::optional<MemoryStatus> memory;
  std::optional<RankMemory> rank_memory;
  std::optional<LossSpike> loss_spike;   // the last one
  std::optional<int64_t> skipped_steps;  // whose loss or gradient was not finite
};

}  // namespace trainyard::api
