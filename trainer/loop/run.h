// The whole life of one rank. Thread-safety: called once, from the main thread.
#pragma once

#include "trainer/config/config.h"

namespace trainyard::loop {

// Trains as the environment and the resolved job say, and returns the contract's exit code. A failure is one line on
// standard error, "trainyard-trainer: rank R: ...", and in rank 0's status.
int Run(const config::GetEnv& get);

}  // namespace trainyard::loop
