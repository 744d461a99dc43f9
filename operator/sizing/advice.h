// What a person would add to a plan: what two, four and eight GPUs are good for, where scaling is poor, what the batch
// is, and the ways out where nothing fits. Private to the room. Thread-safety: as Evaluator.
#pragma once

#include <string>
#include <vector>

#include "operator/sizing/search.h"

namespace trainyard::sizing {

std::vector<std::string> AdviceFor(Evaluator& evaluator, const Trial& chosen);

// `shown`: the options of the plan.
std::vector<std::string> WarningsFor(const PlanRequest& request, const std::vector<PlanOption>& shown,
                                     const PlanOption* chosen);

// For a request of which nothing fits; `nearest` is the trial that comes nearest. Each way is a plan of its own, so
// this looks at several of them.
WaysOut WaysOutOf(Evaluator& evaluator, const Trial& nearest);

}  // namespace trainyard::sizing
