// What can be said about a TrainingJob by looking at it alone; whether it fits a cluster is the plan's business. The
// CEL rules of the CRD say the same where they can. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::api {

// Every error at once, each one line that opens with its path: "spec.gpus.minCount: 8 is more than maxCount 4".
// Expects ApplyDefaults to have run. Empty: valid.
std::vector<std::string> Validate(const TrainingJob& job);

// Fields that may not change once the job exists, since checkpoints, the sample order or the meaning of a run hang on
// them. Does not repeat what Validate(new_job) says.
std::vector<std::string> ValidateUpdate(const TrainingJob& old_job, const TrainingJob& new_job);

}  // namespace trainyard::api
