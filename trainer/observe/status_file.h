// status.json: how the job is doing, in the contract's form, for launcher and operator. Always whole: a new file is
// renamed over the old one. Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard::observe {

// The last checkpoint, and how saving goes on.
struct CheckpointStatus {
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0;                    // from the step to the commit
  std::string time;                      // RFC 3339; empty: there is no checkpoint yet, and the three above are unknown
  std::optional<double> stall_seconds;   // training stood still for it: most of the ranks
  std::optional<double> write_seconds;   // from the copy to the commit
  std::optional<bool> verified;          // that it was right when it was read back
  std::optional<double> verify_seconds;  // which took so long
  std::string damage;  // of one that was read back and is bad, this or an older one: step, file, tensor
  std::optional<double> every_seconds;     // cadence in force when it is by time
  std::optional<double> cost_seconds;      // what a save takes from training
  std::optional<int64_t> next_step;        // after which the next one is to be expected
  std::optional<int64_t> free_bytes;       // of the file system that has the directory
  std::optional<int64_t> directory_bytes;  // of all checkpoints in it
  int64_t failures = 0;                    // saves that failed since the last good one
  std::string failure;                     // of the last of them: step, rank, reason
};

// How the checkpoint that this attempt started from was read.
struct RestoredStatus {
  double seconds = 0;
  int64_t bytes_read = 0;                    // from files, by all ranks
  int64_t most_bytes_read = 0;               // by one rank
  std::optional<double> first_step_seconds;  // from the end of it to the end of the first step
};

// Bytes of tensors on this rank, the highest values so far. Full weights, accumulated gradients, master weights and
// moments, the engine's buffers, what operations made at their peak, and the peak of all together.
struct MemoryStatus {
  int64_t params = 0;
  int64_t gradients = 0;
  int64_t master = 0;
  int64_t optimizer = 0;
  int64_t buffers = 0;
  int64_t activations_peak = 0;
  int64_t peak_total = 0;
};

// The last loss that jumped.
struct SpikeStatus {
  int64_t step = 0;
  double loss = 0;
  double median = 0;  // of the losses before it
};

// Over all ranks, the highest values so far.
struct RankMemoryStatus {
  int64_t most_bytes = 0;  // tensors of the rank that holds most
  int most_rank = 0;
  int64_t least_bytes = 0;
};

// The rank that computes longest.
struct SlowestRankStatus {
  int rank = 0;
  double excess = 0;  // over the mean of the ranks, as a part of it
};

// Absent means unknown.
struct TrainerStatus {
  std::string job_uid;
  int64_t attempt = 0;
  int64_t round = 0;
  int world_size = 1;
  std::string phase;
  int64_t step = 0;
  int64_t steps = 0;
  std::optional<double> loss, validation_loss, initial_validation_loss;
  std::optional<double> tokens_per_second, mfu;
  std::optional<double> step_seconds;  // of the last step, as the next five: see StepRecord
  std::optional<double> data_seconds, compute_seconds, communication_seconds, optimizer_seconds, checkpoint_seconds;
  std::optional<int64_t> resumed_from_step;
  std::optional<RestoredStatus> restored;
  int64_t skipped_steps = 0;
  std::optional<CheckpointStatus> checkpoint;
  std::optional<MemoryStatus> memory;
  std::optional<RankMemoryStatus> rank_memory;
  std::optional<SlowestRankStatus> slowest_rank;
  std::optional<SpikeStatus> loss_spike;
  std::string parameter_hash;
  std::string state_hash;         // of parameters and optimizer state at the end
  std::string loaded_state_hash;  // the same when the checkpoint had been loaded
  std::string message;
};

// Numbers that are not finite are left out. PURE.
std::string ToJson(const TrainerStatus& status);

class StatusFile {
 public:
  // `interval`: how often Update writes at most while the phase stays the same.
  StatusFile(std::string path, std::chrono::milliseconds interval) : path_(std::move(path)), interval_(interval) {}

  using Time = std::chrono::steady_clock::time_point;
  // Writes when the phase changed or the interval has passed. Error: kUnavailable names the path.
  Status Update(const TrainerStatus& status, Time now);
  // Writes now.
  Status Write(const TrainerStatus& status, Time now);

 private:
  std::string path_;
  std::chrono::milliseconds interval_;
  std::optional<Time> written_;
  std::string phase_;
};

}  // namespace trainyard::observe
