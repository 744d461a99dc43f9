// The resolved job: what the trainer is told, with every default and every choice of the plan filled in. It travels as
// the annotation trainyard.dev/job. Format: docs/contract.md. Pure. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::lifecycle {

// The device that training.device means on `product`. Errors: kInvalidArgument for CUDA on simulated nodes.
Result<api::DeviceKind> ResolveDevice(api::DeviceKind wanted, const std::string& product);

// `job` has its defaults applied; `plan` answers it. Parts that the job lacks (a bare parameter count, no data) are
// left out: the bundled trainer needs them and validation has asked for them, a user's own program does not.
nlohmann::json ResolvedJob(const api::TrainingJob& job, const api::PlanStatus& plan);

}  // namespace trainyard::lifecycle
