// The step log: one JSON line per optimizer step, appended and flushed, so that it is whole after a kill at any moment.
// Losses are rounded to 9 significant digits (%.9g), which tells any two fp32 values apart. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "operator/base/error.h"

namespace trainyard::observe {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;  // nats per token, before the update
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t tokens = 0;        // of this step, all ranks
  double tokens_per_second = 0;
  double step_seconds = 0;  // wall time of the whole step; the rest are parts of it
  double data_seconds = 0;
  double compute_seconds = 0;        // forward and backward, and what communication hides behind them
  double communication_seconds = 0;  // waiting for peers outside of forward and backward
  double optimizer_seconds = 0;
  double checkpoint_seconds = 0;  // time that training stood still after the previous step; 0 when nothing was saved
  int64_t cursor = 0;             // sequences consumed after this step
};

// One line without newline. Numbers that are not finite are left out. PURE.
std::string ToJson(const StepRecord& record);

// `value` rounded as %.9g prints it, so that its shortest JSON form is that text.
double Round9(double value);

class StepLog {
 public:
  // Appends to `path`. An unfinished last line of an earlier life is ended first. Error: kUnavailable names the path.
  static Result<StepLog> Open(const std::string& path);
  StepLog(StepLog&&) noexcept;
  StepLog& operator=(StepLog&&) noexcept;
  ~StepLog();

  // Error: kUnavailable, once per failing call; training can go on without its log.
  Status Append(const StepRecord& record);

 private:
  StepLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

}  // namespace trainyard::observe
