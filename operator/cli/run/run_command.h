// `trainyard run JOB.yaml`: runs a job on this machine by the same controller as in a cluster, on simulated nodes whose
// pods are local processes. Thread-safety: call from the main thread, before others are started.
#pragma once

#include <CLI/CLI.hpp>

#include "operator/cli/run/prepare.h"
#include "operator/cli/run/printer.h"

namespace trainyard::cli {

// Returns the exit code.
int RunRun(const RunFlags& flags, const Console& console);

// Registers the subcommand. The references must outlive `app`.
void AddRunCommand(CLI::App& app, int& exit_code, const Console& console);

}  // namespace trainyard::cli
