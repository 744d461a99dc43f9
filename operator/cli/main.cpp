// `trainyard`: plan, run, watch and check training jobs from the command line. Exit codes: exit_codes.h.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iostream>
#include <system_error>
#include <thread>

#include <CLI/CLI.hpp>

#include "operator/cli/checkpoints/checkpoints_command.h"
#include "operator/cli/client_commands.h"
#include "operator/cli/data/data_command.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/generate/generate_command.h"
#include "operator/cli/plan/plan_command.h"
#include "operator/cli/run/interrupts.h"
#include "operator/cli/run/run_command.h"
#include "operator/cli/top/top_command.h"
#include "operator/cli/topology_command.h"
#include "operator/cli/validate_command.h"

namespace trainyard::cli {
namespace {

Console StandardConsole() {
  Console console{std::cout, std::cerr};
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0) {
    console.live = true;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) console.width = size.ws_col - 1u;
  }
  return console;
}

// With Ctrl-C, the pod is deleted before the command ends.
int RunCheckpointsInPod(const InClusterFlags& flags, const std::vector<std::string>& command) {
  const Result<kube::Config> config = ClusterConfig(flags);
  if (!config) {
    std::cerr << "trainyard: " << config.error().message << "\n";
    return ExitCodeOf(config.error());
  }
  const RealClock clock;
  const Interrupts interrupts;
  const auto wait = [&](Milliseconds time) {
    interrupts.Wait(0, time);
    return interrupts.count() == 0;
  };
  return RunInCluster(*config, flags, command, {std::cout, std::cerr, clock, wait});
}

int Main(int argc, char** argv) {
  // A reader that goes away shows up as a failed write, not as a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Sizes, runs and watches GPU training jobs.", "trainyard");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* /*app*/, const CLI::Error& error) {
    return std::string("trainyard: ") + error.what() + "; see 'trainyard --help'\n";
  });

  int exit_code = kExitOk;
  const RealClock clock;
  const Console console = StandardConsole();
  const ClientContext client{std::cout, std::cerr, clock, [] { return http::NewCpprestTransport(); },
                             [](Milliseconds time) { std::this_thread::sleep_for(time); }};
  AddPlanCommand(app, exit_code);
  AddValidateCommand(app, exit_code, std::cout, std::cerr);
  AddRunCommand(app, exit_code, console);
  AddClientCommands(app, exit_code, client);
  AddTopologyCommand(app, exit_code, std::cout, std::cerr);
  AddTopCommand(app, exit_code, {std::cout, std::cerr, clock, ConnectForTop});
  AddCheckpointsCommand(app, exit_code, std::cout, std::cerr, RunCheckpointsInPod);
  AddDataCommand(app, exit_code, console, clock);
  AddGenerateCommand(app, exit_code, {std::cin, std::cerr, BecomeProgram});
  app.add_subcommand("version", "Print the version")->callback([] {
    std::cout << "trainyard " TRAINYARD_VERSION "\n";
  });
  if (const auto problem = EmptyArgument({argv, static_cast<size_t>(argc)})) {
    std::cerr << "trainyard: " << *problem << "; see 'trainyard --help'\n";
    return kExitBadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, std::cout, std::cerr);
    return code == 0 ? kExitOk : kExitBadInput;
  }
  return exit_code;
}

// What a command has said is an answer only once it is written. Call it last.
int FinishOutput(int code) {
  const bool failed = !std::cout;
  errno = 0;
  std::cout.clear();
  std::cout.flush();  // what is left of a failed write fails again, and says why
  if (std::cout && !failed) return code;
  const int problem = errno;
  // A reader that has seen enough needs no word.
  if (problem != EPIPE) {
    std::cerr << "trainyard: standard output: "
              << (problem != 0 ? std::generic_category().message(problem) : "not all could be written") << "\n";
  }
  return code == kExitOk ? kExitUnreachable : code;
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  trainyard::http::LoadSystemAuthoritiesOnce();
  return trainyard::cli::FinishOutput(trainyard::cli::Main(argc, argv));
}
