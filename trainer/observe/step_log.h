// The step log: one JSON line per optimizer step, appended and flushed, so that it is whole after a kill at any moment.
// Losses are rounded to 9 significant digits (%.9g), which tells any two fp32 values apart. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/observe/append_file.h"

namespace trainyard::observe {

// What the ranks told of themselves since they last did, one value for each rank.
struct RankColumns {
  std::vector<int64_t> peak_bytes;      // of tensors, the highest so far
  std::vector<int64_t> resident_bytes;  // of the process, the highest so far
  std::vector<double> data_seconds, compute_seconds, communication_seconds;
};

struct StepRecord {
  int64_t step = 0;
  double loss = 0;  // nats per token, before the update
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t tokens = 0;        // of this step, all ranks
  double tokens_per_second = 0;
  std::optional<double> mfu;
  double step_seconds = 0;           // wall time of the whole step; data to optimizer are parts of it, on this rank
  double data_seconds = 0;           // waiting for data and moving it to the device
  double compute_seconds = 0;        // forward and backward without waits, and what communication hides behind them
  double communication_seconds = 0;  // exposed: waiting for peers, wherever in the step
  double optimizer_seconds = 0;      // gradient norm and update
  double checkpoint_seconds = 0;     // standing still for a save, after the previous step and in this one's update
  int64_t cursor = 0;                // sequences consumed after this step
  std::optional<RankColumns> ranks;  // once every few steps
  int64_t skipped_steps = 0;         // so far, this one included: their loss or gradient norm was not finite
};

// One line without newline. Numbers that are not finite are left out. PURE.
std::string ToJson(const StepRecord& record);

// `value` rounded as %.9g prints it, so that its shortest JSON form is that text.
double Round9(double value);

class StepLog {
 public:
  // Appends to `path`. An unfinished last line of an earlier life is ended first. Error: kUnavailable names the path.
  static Result<StepLog> Open(const std::string& path);

  // The whole line or nothing. Error: kUnavailable, once per failing call; training can go on without its log.
  Status Append(const StepRecord& record);

 private:
  explicit StepLog(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

}  // namespace trainyard::observe
