// The chosen plan as a file of another tool, for people who run it themselves.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/base/error.h"
#include "operator/cli/plan/plan_flags.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {

// `tool` is torchrun (shell), accelerate (YAML of `accelerate launch --config_file`), deepspeed (JSON of
// `--deepspeed_config`) or trainingjob (YAML for kubectl, see emit_job.h). `input`: what the plan was made from.
// Errors: kInvalidArgument where nothing was chosen, or the tool cannot do what the plan chose.
Result<std::string> Emit(const std::string& tool, const sizing::Plan& plan, const PlanInput& input);

}  // namespace trainyard::cli
