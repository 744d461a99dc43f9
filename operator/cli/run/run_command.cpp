#include "operator/cli/run/run_command.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "operator/cli/exit_codes.h"
#include "operator/cli/run/interrupts.h"
#include "operator/cli/run/ladder.h"
#include "operator/cli/run/session.h"
#include "operator/cli/run/state_dir.h"

namespace trainyard::cli {
namespace {

// The controller's log goes into a file, since the terminal tells the story of the job.
void LogInto(const std::string& path) {
  try {
    spdlog::set_default_logger(spdlog::basic_logger_mt("run", path));
    spdlog::flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& e) {
    spdlog::warn("no log file: {}", e.what());
  }
}

int Report(const Console& console, const std::string& message, int code) {
  console.err << "trainyard: " << message << "\n";
  return code;
}

// Every error that hinders a start is one of input or of this machine's state.
int StartCode(const Error& error) { return error.code == ErrorCode::kInternal ? kExitJobFailed : kExitBadInput; }

}  // namespace

int RunRun(const RunFlags& flags, const Console& console) {
  auto state_dir = StateDir::Lock(flags.state_dir);
  if (!state_dir) return Report(console, state_dir.error().message, StartCode(state_dir.error()));
  std::vector<std::string> errors;
  RunSetup setup = PrepareRun(flags, state_dir->path(), errors);
  for (const std::string& error : errors) Report(console, error, kExitBadInput);
  if (!errors.empty()) return kExitBadInput;

  LogInto(state_dir->path() + "/controller.log");
  Interrupts interrupts;
  RealClock clock;
  Printer printer(console, flags.output == "json", clock.Now());
  if (!flags.ladder.empty()) return RunLadder(flags, setup, state_dir->path(), interrupts, console, printer);
  printer.Note("job " + setup.job.meta.name + " on " + std::to_string(flags.nodes) + " simulated node" +
                   (flags.nodes == 1 ? "" : "s") + " with " + std::to_string(flags.gpus_per_node) +
                   (flags.gpus_per_node == 1 ? " GPU" : " GPUs") + " each; state in " + state_dir->path(),
               clock.Now());
  auto session = Session::Start(setup, *state_dir, flags.port, clock);
  if (!session) return Report(console, session.error().message, StartCode(session.error()));
  return (*session)->Follow(interrupts, printer);
}

void AddRunCommand(CLI::App& app, int& exit_code, const Console& console) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", "Run a TrainingJob on this machine, on simulated nodes");
  run->add_option("FILE", flags->file, "TrainingJob (YAML or JSON); - reads standard input")->required();
  run->add_option("--nodes", flags->nodes, "Simulated nodes")->check(CLI::Range(1, 256))->capture_default_str();
  run->add_option("--gpus-per-node", flags->gpus_per_node, "Simulated GPUs of each; every GPU is one process")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  run->add_option("--memory-per-gpu", flags->memory_per_gpu,
                  "Memory of a simulated GPU, such as 4Gi; default: this machine's, shared out");
  run->add_option("--state-dir", flags->state_dir, "Where logs, volumes of claims and the endpoint file go")
      ->capture_default_str();
  run->add_option("--volume", flags->volumes, "NAME=PATH: where a volume of the job lies on this machine; repeatable");
  run->add_option("-o,--output", flags->output, "text, or json: one object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  run->add_option("--listen", flags->port, "Port on 127.0.0.1 for 'trainyard get' and 'resize'; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  run->add_option(
         "--ladder", flags->ladder,
         "1,2,4: run a few steps at each of these GPU counts in place of the job, and compare speed and losses")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  run->add_option("--ladder-steps", flags->ladder_steps, "Steps at each size; the first ten are warm-up")
      ->check(CLI::Range(20, 100000))
      ->capture_default_str();
  run->callback([flags, &exit_code, &console] { exit_code = RunRun(*flags, console); });
}

}  // namespace trainyard::cli
