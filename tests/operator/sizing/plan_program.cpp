// `trainyard plan` alone, as a program: what the tests that need one run instead of the whole command line.
#include "operator/cli/plan/plan_command.h"

#include <vector>

int main(int argc, char** argv) {
  std::vector<const char*> arguments = {"trainyard", "plan"};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int exit_code = 0;
  CLI::App app("trainyard");
  trainyard::cli::AddPlanCommand(app, exit_code);
  CLI11_PARSE(app, static_cast<int>(arguments.size()), arguments.data());
  return exit_code;
}
