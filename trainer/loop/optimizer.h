// From the words of the job to the optimizer and its learning rates. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::loop {

optim::Options OptimizerOf(const config::Optimizer& optimizer);

// The learning rate of step `step`, counted from 1.
double PlannedRate(const config::Training& training, int64_t step);

// What a checkpoint must have been made with, so that its optimizer state is of use: "AdamW", "AdamW8bit", "Adafactor",
// "SGD with momentum", "SGD without momentum".
std::string StateKind(const config::Optimizer& optimizer);

// "rate" of train_state.json: all that the learning rates of the steps follow from.
nlohmann::ordered_json RateState(const config::Training& training);
// What of that is another in the job than in a state, one line each: "training.optimizer.learningRate is 0.001 instead
// of 0.003". Nothing for a state that does not have it.
std::vector<std::string> RateChanges(const nlohmann::json& state, const config::Training& training);

}  // namespace trainyard::loop
