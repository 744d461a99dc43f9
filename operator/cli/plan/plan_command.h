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

// What is wrong with the first empty argument of a command line, for the user: no flag and no name has a use for '',
// and to go on as if it were not there would hide a script's unset variable. So is a flag with nothing after its '=',
// as
// "--price=": CLI11 would take the next argument for its value.
std::optional<std::string> EmptyArgument(std::span<const char* const> arguments);

}  // namespace trainyard::cli
