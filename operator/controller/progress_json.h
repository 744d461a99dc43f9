// The status JSON of trainer/contract as the lifecycle sees it. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::controller {

struct ProgressReport {
  int64_t attempt = 0;
  api::Progress progress;
  std::optional<api::CheckpointStatus> checkpoint;
};

// Errors: kFailedPrecondition when it speaks of another job or another contract; kInvalidArgument for wrong types.
// Non-finite and absent numbers are left out.
Result<ProgressReport> ProgressFromJson(const nlohmann::json& status, const std::string& job_uid);

}  // namespace trainyard::controller
