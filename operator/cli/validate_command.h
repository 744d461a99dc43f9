// `trainyard validate FILE...`: says everything that is wrong with TrainingJobs. Needs no cluster.
// Thread-safety: call from one thread.
#pragma once

#include <iosfwd>

#include <CLI/CLI.hpp>

namespace trainyard::cli {

// Registers the subcommand; when it runs it sets `exit_code`. The references must outlive `app`.
void AddValidateCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err);

}  // namespace trainyard::cli
