// `trainyard run --ladder 1,2,4 JOB.yaml`: a few steps of a job at each size, one after the other, on this machine: how
// the speed grows, where the time goes, and whether the losses stay the same. Thread-safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/cli/run/interrupts.h"
#include "operator/cli/run/prepare.h"
#include "operator/cli/run/printer.h"

namespace trainyard::cli {

// The setup of a rung: the job on `gpus` GPUs of one node for `steps` steps, without checkpoints and evaluation, with
// its volumes where the job has them. Everything of the rung goes below `state_dir`/ladder/`gpus`. Appends what makes
// the job impossible at that size.
RunSetup RungOf(const RunSetup& setup, const std::string& state_dir, int64_t gpus, int64_t steps,
                std::vector<std::string>& errors);

// Why there is no ladder for a job at any size; nothing: there is one.
std::optional<std::string> LadderProblem(const api::Spec& spec);

// Returns the exit code. `setup` is that of the job itself.
int RunLadder(const RunFlags& flags, const RunSetup& setup, const std::string& state_dir, const Interrupts& interrupts,
              const Console& console, Printer& printer);

}  // namespace trainyard::cli
