// From the words of the job to the optimizer and its learning rates. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::loop {

optim::Options OptimizerOf(const config::Optimizer& optimizer);

// The learning rate of step `step`, counted from 1.
double PlannedRate(const config::Training& training, int64_t step);

// What a checkpoint must have been made with, so that its optimizer state is of use: "AdamW", "SGD with momentum",
// "SGD without momentum".
std::string StateKind(const config::Optimizer& optimizer);

}  // namespace trainyard::loop
