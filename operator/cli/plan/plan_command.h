// `trainyard plan`: how many GPUs of which kind, why, how long, for how much. Needs no cluster.
// Thread-safety: call from one thread.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include <CLI/CLI.hpp>

namespace trainyard::cli {

// Registers the subcommand. When it runs it writes the plan to `out`, or one line per error to `err`, and sets
// `exit_code`. The references must outlive `app`.
void AddPlanCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err);
// The same on std::cout and std::cerr.
void AddPlanCommand(CLI::App& app, int& exit_code);

// The first flag of a command line that is written with nothing after its '=', as "--price" of "--price="; CLI11 would
// take the next argument for its value.
std::optional<std::string> FlagWithoutValue(std::span<const char* const> arguments);

}  // namespace trainyard::cli
