// A plan for people and for programs.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/sizing/plan.h"

namespace trainyard::cli {

// {"model": {"parameters", "stateBytes"}, "minimum": {"stateOnly", "full"}, "options": [{"product", "gpus", "perNode",
// "strategy", "microBatch", "fits", "perGPU": {...}, "efficiency", "hours", "cost", "checkpointBytes", "why"}]}.
// Bytes are whole numbers; hours and cost are null where nothing says them, whole with round_hours, else to 6 decimals.
nlohmann::ordered_json PlanToJson(const sizing::Plan& plan);

// Tables for a terminal, at most about 120 columns, closed by a newline.
std::string PlanToText(const sizing::Plan& plan);

}  // namespace trainyard::cli
