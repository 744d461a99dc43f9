// The configuration files of accelerate and DeepSpeed for one option of a plan. Private to the room.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {

struct ToolContext {
  const sizing::PlanRequest& request;
  const sizing::PlanOption& option;
  const api::TrainingJob* job;  // for learning rate and clipping; null: the defaults of the API
};

// ZeRO stage of DeepSpeed: 0 DDP, 1 to 3; at least 2 with states in host memory and 3 with states on disk, since
// DeepSpeed offloads from those stages on.
int ZeroStage(const sizing::PlanOption& option);

// `accelerate launch --config_file`: FSDP2 for FSDP and HSDP, DeepSpeed for ZeRO1, ZeRO2 and states on disk.
Result<std::string> AccelerateYaml(const ToolContext& context);

// `deepspeed --deepspeed_config`, or TrainingArguments(deepspeed=...).
Result<std::string> DeepspeedJson(const ToolContext& context);

}  // namespace trainyard::cli
