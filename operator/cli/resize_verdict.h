// What `trainyard resize --verify` makes of status.resize. Thread-safety: pure functions.
#pragma once

#include <optional>
#include <string>

#include "operator/api/training_job.h"

namespace trainyard::cli {

struct ResizeVerdict {
  bool same = false;  // the state that was loaded is the one that the ranks held when they stopped
  std::string text;   // one line
};

// Of the attempt that runs; nullopt: it has not told yet what it loaded.
std::optional<ResizeVerdict> VerdictOf(const api::JobStatus& status);

// "from 2 to 4 GPUs in 3.9 s: place 0 s, drain 0.1 s, save 0.5 s, ..."; what is not known is left out.
std::string ResizeTimes(const api::ResizeStatus& resize);

}  // namespace trainyard::cli
