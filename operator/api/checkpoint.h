// Checkpoints of a TrainingJob: spec.checkpoint and what status says of them, of failures and of resizes.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/base/clock.h"

namespace trainyard::api {

// A directory in a volume.
struct VolumeDirectory {
  std::string volume;
  std::string path;
};

// ---- spec.checkpoint --------------------------------------------------------------------------------------------

enum class Resume { kLatest, kNever, kStep };
enum class OnDelete { kRetain, kDelete };

// Checkpoints are read back and their hashes compared.
struct VerifyCheckpoints {
  bool after_save = true;
  double every_hours = 24;  // 0: not on a schedule
};

// Where a job begins whose own directory has no checkpoint.
struct ResumeFrom {
  std::string volume;
  std::string path;
  int64_t step = 0;           // 0: the newest valid one
  bool weights_only = false;  // the model alone: optimizer and step begin anew
};

// At most one of every_steps and every_minutes; neither: Young and Daly (trainer/contract/cadence.h).
struct Checkpoint {
  std::string volume;
  std::string path;                     // empty: the job's name
  std::optional<int64_t> every_steps;   // spec.checkpoint.every.steps
  std::optional<double> every_minutes;  // spec.checkpoint.every.minutes
  int64_t keep_last = 3;
  int64_t keep_every_steps = 0;  // 0: none is kept for its step
  std::optional<VerifyCheckpoints> verify;
  Resume resume = Resume::kLatest;
  int64_t resume_step = 0;
  std::optional<ResumeFrom> resume_from;
  OnDelete on_delete = OnDelete::kRetain;
  std::optional<VolumeDirectory> export_on_success;  // where the model of the last step goes as Hugging Face has it
};

// ---- status -----------------------------------------------------------------------------------------------------

// The last durable checkpoint, and how saving goes. Step 0: none yet. What is not known is absent.
struct CheckpointStatus {
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0;
  std::string time;                          // RFC 3339
  std::optional<double> stall_seconds;       // that training stood still for it, most of the ranks
  std::optional<double> write_seconds;       // from the copy to the commit
  std::optional<double> verify_seconds;      // that reading it back took
  std::optional<bool> verified;              // whether what was read back had the hashes that were written
  std::string damage;                        // of one that was read back and is bad, this or an older one, in one line
  std::optional<double> every_seconds;       // cadence in force where it is by time
  std::optional<double> cost_seconds;        // what a save takes from training: stall and slower steps beside it
  std::optional<int64_t> next_step;          // estimate of the step of the next save
  std::optional<int64_t> free_bytes;         // of the file system that has the directory
  std::optional<int64_t> directory_bytes;    // of all checkpoints of the job
  std::optional<int64_t> failures;           // saves that failed since the last good one
  std::string failure;                       // the last of them, in one line: step, rank, reason
  std::optional<double> mean_failure_hours;  // between two failures of this attempt, as estimated at its claim
  std::string failure_source;                // what that estimate stands on
  std::optional<TimePoint> full_at;          // forecast of when the disk is full; absent: not in the life of the job

  bool operator==(const CheckpointStatus&) const = default;
};

// What a job has run through: the evidence for how often jobs of this cluster fail.
struct Exposure {
  double gpu_hours = 0;  // with all pods running
  int64_t failures = 0;  // that ended an attempt which ran

  bool operator==(const Exposure&) const = default;
};

// Where the time of a resize went, as the operator saw it; absent: not yet, or there was no such phase.
struct ResizeSeconds {
  std::optional<double> place;       // from the wish to a place
  std::optional<double> drain;       // from the stop to the save
  std::optional<double> save;        // as the trainer measured it
  std::optional<double> start;       // from the last pod's end to the beginning of the load
  std::optional<double> load;        // as the trainer measured it, like the next one
  std::optional<double> first_step;  // from the end of the load to the end of the first step

  bool operator==(const ResizeSeconds&) const = default;
};

struct ResizeStatus {
  int64_t from = 0;                    // GPUs
  int64_t to = 0;                      // GPUs; 0: not known before there is a place
  std::string why;                     // one line
  int64_t attempt = 0;                 // the one that begins at the new size; 0: not claimed yet
  std::optional<TimePoint> wanted_at;  // when the operator first saw that another size is wanted
  std::optional<TimePoint> stopped_at;
  std::optional<TimePoint> gone_at;  // when the last pod of the old size was gone
  std::optional<TimePoint> loaded_at;
  ResizeSeconds seconds;
  std::optional<int64_t> bytes_read_per_rank;  // of the rank that read most
  std::string saved_hash;                      // of the state that the ranks held when they stopped
  std::string loaded_hash;                     // of the state that they held when they had loaded it

  bool operator==(const ResizeStatus&) const = default;
};

}  // namespace trainyard::api
