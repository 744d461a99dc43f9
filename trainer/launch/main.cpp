// trainyard-launch: one per pod. Starts the ranks, serves the job's status, explains how it ended.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operator/base/files.h"
#include "operator/http/server.h"
#include "trainer/contract/contract.h"
#include "trainer/launch/outcome.h"
#include "trainer/launch/plan.h"
#include "trainer/launch/status_server.h"
#include "trainer/launch/supervisor.h"

namespace trainyard::launch {
namespace {

constexpr const char* kUsage =
    "Usage: trainyard-launch [--] [PROGRAM ARGS...]\n"
    "Starts NPROC_PER_NODE processes of PROGRAM (default: trainyard-trainer beside this program) with RANK,\n"
    "LOCAL_RANK and WORLD_SIZE set. Everything else comes from the environment: docs/contract.md.\n";

// One write per line, so that lines of the ranks and of this program do not mix.
void WriteLine(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = write(STDERR_FILENO, line.data() + sent, line.size() - sent);
    if (n <= 0) return;  // nobody reads our log: no reason to stop training
    sent += static_cast<size_t>(n);
  }
}

void Log(const std::string& line) { WriteLine("trainyard-launch: " + line + "\n"); }

std::string DefaultProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "trainyard-trainer" : self.parent_path() / "trainyard-trainer";
}

// Explains the end to people and to Kubernetes; neither may fail the job.
int Finish(const Plan& plan, const Outcome& outcome) {
  if (outcome.rank >= 0 || !outcome.message.empty())
    Log("failed with exit code " + std::to_string(outcome.exit_code) + ": " + outcome.message);
  if (!plan.termination_log.empty()) {
    const auto text = ReadFile(plan.run_dir + "/" + std::string(contract::kStatusFile));
    const std::string json = TerminationJson(outcome, text.value_or(""));
    if (Status written = WriteTermination(plan.termination_log, json); !written) Log(written.error().message);
  }
  return outcome.exit_code;
}

int Run(const std::vector<std::string>& arguments) {
  auto plan = ReadPlan([](const char* name) { return std::getenv(name); }, arguments, DefaultProgram());
  if (!plan) {
    Plan minimal;
    const char* log = std::getenv(contract::kEnvTerminationLog);
    minimal.termination_log = log != nullptr ? log : "";
    return Finish(minimal, {contract::kExitConfiguration, -1, 0, plan.error().message});
  }
  // Threads that spin while they wait for each other make a step many times longer wherever something else runs too.
  if (arguments.empty() && std::getenv("GOMP_SPINCOUNT") == nullptr) setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  if (Status made = MakeDirectories(plan->run_dir); !made) Log(made.error().message);
  // What an earlier life of this pod wrote is not our status.
  if (plan->node_rank == 0) std::remove((plan->run_dir + "/" + std::string(contract::kStatusFile)).c_str());

  auto supervisor = Supervisor::Make(*plan, WriteLine);
  if (!supervisor) return Finish(*plan, {contract::kExitInternal, -1, 0, supervisor.error().message});
  std::unique_ptr<http::Server> server;
  if (plan->node_rank == 0) {
    http::ServerOptions options;
    options.host = plan->status_host;
    options.port = plan->status_port;
    options.max_body_bytes = 64 << 10;
    options.max_connections = 64;
    options.log = Log;
    auto started = http::Server::Start(
        options, [&](const http::Request& request) { return Answer(*plan, **supervisor, request); });
    if (!started) {
      const bool taken = started.error().code == ErrorCode::kAlreadyExists;
      return Finish(*plan, {taken ? contract::kExitPortInUse : contract::kExitConfiguration, -1, 0,
                            "status port: " + started.error().message});
    }
    server = std::move(*started);
    const std::string port_file = plan->run_dir + "/" + std::string(contract::kStatusPortFile);
    if (Status written = WriteFileAtomically(port_file, std::to_string(server->port()) + "\n"); !written) {
      Log(written.error().message);
    }
  }
  return Finish(*plan, (*supervisor)->Run());
}

}  // namespace
}  // namespace trainyard::launch

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs(trainyard::launch::kUsage, stdout);
    return 0;
  }
  return trainyard::launch::Run(arguments);
}
