// `trainyard data tokenize|show`: the flags; what they do is in tokenize.h. Thread-safety: call from one thread.
#pragma once

#include <CLI/CLI.hpp>

#include "operator/base/clock.h"
#include "operator/cli/run/printer.h"

namespace trainyard::cli {

// Registers the commands; when one runs it sets `exit_code`. The references must outlive `app`.
void AddDataCommand(CLI::App& app, int& exit_code, Console console, const Clock& clock);

}  // namespace trainyard::cli
