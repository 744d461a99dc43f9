// The chosen plan as a TrainingJob, from which `trainyard plan --job` and the operator come to the same plan.
// Private to the room. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/base/error.h"
#include "operator/cli/plan/plan_flags.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {

// YAML for kubectl. From --job: that job, with what the plan decided and what flags changed. From --config: its
// architecture, and from a number: parameters, both with an image and a command to fill in.
// Errors: kInvalidArgument where a TrainingJob has no field for something that the plan rests on, or the job would be
// refused by the operator; one line.
Result<std::string> TrainingJobYaml(const sizing::Plan& plan, const sizing::PlanOption& option, const PlanInput& input);

}  // namespace trainyard::cli
