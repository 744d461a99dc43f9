// `trainyard generate`: makes text with a model on this machine. The arithmetic is in a program of the trainer's, which
// takes this one's place. Thread-safety: call from the main thread.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include <CLI/CLI.hpp>

#include "operator/base/error.h"

namespace trainyard::cli {

// What the command needs of the world.
struct GenerateContext {
  std::istream& in;
  std::ostream& err;
  // Becomes the program with this one argument; returns only with an error.
  std::function<Error(const std::string& program, const std::string& argument)> become;
};

// `become` of the real world: a program beside the running one.
Error BecomeProgram(const std::string& program, const std::string& argument);

// Registers the subcommand. `app` and `exit_code` must outlive the parse.
void AddGenerateCommand(CLI::App& app, int& exit_code, const GenerateContext& context);

}  // namespace trainyard::cli
