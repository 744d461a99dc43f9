// `trainyard-operator`: turns TrainingJobs into running pods. Flags, signals, and a Manager between them. Exit codes: 0
// after a signal, 1 when it could not start, 2 for flags that make no sense, 3 when a second signal cut the end short.
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "operator/api/names.h"
#include "operator/base/files.h"
#include "operator/base/quantity.h"
#include "operator/http/transport.h"
#include "operator/logging.h"
#include "operator/manager.h"
#include "operator/placement/fabric.h"
#include "operator/placement/topology.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard {
namespace {

constexpr int kExitCannotStart = 1;
constexpr int kExitBadFlags = 2;
constexpr int kExitCutShort = 3;

// What the command line says, before it is checked.
struct Flags {
  std::string metrics_address = ":8080";
  std::string probes_address = ":8081";
  std::string cpu_per_gpu = "1";
  std::string memory_per_gpu = "2Gi";
  std::string catalogue;
  std::string topology = "Auto";
  std::string fabric_profiles;
  std::string log_level = "info";
  std::string log_format = "text";
  int64_t kube_api_timeout = 30'000, lease_timeout = 5'000, watch_timeout = 150'000, watch_idle_timeout = 185'000;
  int64_t lease_duration = 15'000, renew_deadline = 10'000, retry_period = 2'000;
  ManagerOptions manager;
};

void AddFlags(CLI::App& app, Flags& flags) {
  const auto named = [](CLI::Option* option) {
    std::string variable = "TRAINYARD_" + option->get_lnames().front();
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return option->envname(variable)->capture_default_str();
  };
  const auto duration = [&](const char* name, int64_t& milliseconds, const char* help) {
    const std::map<std::string, int64_t> units = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
    named(app.add_option(name, milliseconds, help))
        ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED, "DURATION"))
        ->default_str(FormatDuration(Milliseconds(milliseconds)));
  };
  ManagerOptions& m = flags.manager;
  named(app.add_option("--kubeconfig", m.kubeconfig, "Path; empty: $KUBECONFIG, the pod's own, ~/.kube/config"));
  named(app.add_option("--namespace", m.controller.ns, "Namespace of the jobs; empty: all"));
  named(app.add_flag("--leader-elect,!--no-leader-elect", m.leader_elect, "Act only while holding a lease"));
  named(app.add_option("--leader-election-namespace", m.election.ns, "Of the lease; empty: the configuration's"));
  named(app.add_option("--leader-election-id", m.election.name, "Name of the lease"));
  duration("--lease-duration", flags.lease_duration, "A lease unrenewed for so long is free");
  duration("--renew-deadline", flags.renew_deadline, "Without a renewal for so long we no longer lead");
  duration("--retry-period", flags.retry_period, "Between tries to renew");
  duration("--lease-timeout", flags.lease_timeout, "Of one call for the lease");
  named(app.add_option("--kube-api-qps", m.kube.qps, "Requests per second at most; 0: no limit"))
      ->check(CLI::Range(0.0, 1e6));
  named(app.add_option("--kube-api-burst", m.kube.burst, "Requests at once at most"))->check(CLI::Range(1, 1'000'000));
  duration("--kube-api-timeout", flags.kube_api_timeout, "Of one call");
  duration("--watch-timeout", flags.watch_timeout, "The server is asked to end a watch after about so long");
  duration("--watch-idle-timeout", flags.watch_idle_timeout, "A watch that brings nothing for so long is dead");
  named(app.add_option("--workers", m.controller.workers, "Jobs worked on at once"))->check(CLI::Range(1, 64));
  named(app.add_option("--parallel-creates", m.controller.parallel_creates, "Pods created at once"))
      ->check(CLI::Range(1, 256));
  named(app.add_option("--metrics-bind-address", flags.metrics_address, "HOST:PORT of /metrics; 0: none"));
  named(app.add_option("--health-probe-bind-address", flags.probes_address, "HOST:PORT of probes; 0: none"));
  named(app.add_option("--trainer-image", m.controller.lifecycle.trainer_image, "For jobs without an own image"));
  named(app.add_option("--cpu-per-gpu", flags.cpu_per_gpu, "Requested by pods, a quantity"));
  named(app.add_option("--memory-per-gpu", flags.memory_per_gpu, "Requested by pods, a quantity"));
  named(app.add_option("--catalogue", flags.catalogue, "File of GPU products (YAML) that changes the known ones"));
  named(app.add_option("--topology", flags.topology,
                       "Where nodes are: Auto, None, a preset, or labels far to near: zone=KEY,rack=KEY"));
  named(app.add_option("--fabric-profiles", flags.fabric_profiles,
                       "File of NCCL profiles (YAML) that changes the known ones"));
  named(app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error"));
  named(app.add_option("--log-format", flags.log_format, "text, json"));
}

// A name that the API server would refuse later, and with words that do not name the flag.
Status CheckName(const char* flag, const std::string& name) {
  if (name.empty() || api::IsDnsLabel(name)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              std::string(flag) + ": '" + name + "' is not a name: at most 63 lower-case letters, digits and hyphens");
}

Result<std::shared_ptr<const sizing::Catalogue>> ReadCatalogue(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto catalogue = sizing::Catalogue::FromYaml(*text, path);
  if (!catalogue) return Fail(catalogue.error());
  return std::make_shared<const sizing::Catalogue>(*std::move(catalogue));
}

Result<std::shared_ptr<const placement::FabricProfiles>> ReadFabricProfiles(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto profiles = placement::FabricProfiles::FromYaml(*text, path);
  if (!profiles) return Fail(profiles.error());
  return std::make_shared<const placement::FabricProfiles>(*std::move(profiles));
}

// Checks what CLI11 cannot, and fills the options.
Status Resolve(Flags& flags) {
  if (Status status = SetUpLogging(flags.log_level, flags.log_format); !status) return status;
  ManagerOptions& m = flags.manager;
  m.version = TRAINYARD_VERSION;
  for (const auto& [flag, name] :
       {std::pair("--namespace", m.controller.ns), std::pair("--leader-election-namespace", m.election.ns),
        std::pair("--leader-election-id", m.election.name)}) {
    if (Status status = CheckName(flag, name); !status) return status;
  }
  m.kube.user_agent = "trainyard-operator/" TRAINYARD_VERSION;
  if (flags.kube_api_timeout <= 0 || flags.lease_timeout <= 0 || flags.watch_timeout <= 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "--kube-api-timeout, --lease-timeout and --watch-timeout must be positive, or no call could ever end well");
  }
  m.kube.request_timeout = Milliseconds(flags.kube_api_timeout);
  m.lease_timeout = Milliseconds(flags.lease_timeout);
  // Spread, so that watches that began together do not end together.
  m.kube.watch_min = std::chrono::seconds(std::max<int64_t>(1, flags.watch_timeout * 8 / 10'000));
  m.kube.watch_max = std::chrono::seconds(std::max<int64_t>(1, flags.watch_timeout * 12 / 10'000));
  m.kube.watch_idle = m.controller.watch_idle = Milliseconds(flags.watch_idle_timeout);
  if (m.kube.watch_idle <= m.kube.watch_max) {
    return Fail(ErrorCode::kInvalidArgument,
                "--watch-idle-timeout must be longer than 1.2 x --watch-timeout, or quiet "
                "watches would be taken for dead ones");
  }
  m.election.lease_duration = Milliseconds(flags.lease_duration);
  m.election.renew_deadline = Milliseconds(flags.renew_deadline);
  m.election.retry_period = Milliseconds(flags.retry_period);
  if (m.leader_elect) {
    if (Status status = runtime::CheckLeaderElection(m.election); !status) return status;
  }
  const auto metrics = runtime::ParseBindAddress(flags.metrics_address);
  if (!metrics) return Fail(metrics.error().Wrap("--metrics-bind-address"));
  m.metrics = *metrics;
  const auto probes = runtime::ParseBindAddress(flags.probes_address);
  if (!probes) return Fail(probes.error().Wrap("--health-probe-bind-address"));
  m.probes = *probes;
  const auto cpu = ParseMilliQuantity(flags.cpu_per_gpu);
  if (!cpu) return Fail(cpu.error().Wrap("--cpu-per-gpu"));
  m.controller.lifecycle.cpu_milli_per_gpu = *cpu;
  m.controller.lifecycle.threads_from_request = true;
  const auto memory = ParseQuantity(flags.memory_per_gpu);
  if (!memory) return Fail(memory.error().Wrap("--memory-per-gpu"));
  m.controller.lifecycle.memory_bytes_per_gpu = *memory;
  if (!flags.catalogue.empty()) {
    const auto catalogue = ReadCatalogue(flags.catalogue);
    if (!catalogue) return Fail(catalogue.error().Wrap("--catalogue"));
    m.controller.lifecycle.yard.catalogue = *catalogue;
  }
  const auto topology = placement::Topology::Parse(flags.topology);
  if (!topology) return Fail(topology.error().Wrap("--topology"));
  m.controller.lifecycle.yard.topology = *topology;
  if (!flags.fabric_profiles.empty()) {
    const auto profiles = ReadFabricProfiles(flags.fabric_profiles);
    if (!profiles) return Fail(profiles.error().Wrap("--fabric-profiles"));
    m.controller.lifecycle.yard.fabrics = *profiles;
  }
  if (*cpu <= 0 || *memory <= 0) {
    return Fail(ErrorCode::kInvalidArgument, "--cpu-per-gpu and --memory-per-gpu must be positive");
  }
  return {};
}

// SIGTERM and SIGINT, taken by threads that wait for them: handlers could not do what an end needs.
class Signals {
 public:
  // To be made before any other thread, which inherits that the signals are blocked.
  Signals() {
    sigemptyset(&ends_);
    sigaddset(&ends_, SIGTERM);
    sigaddset(&ends_, SIGINT);
    sigaddset(&ends_, SIGUSR1);  // tells AwaitSecond() that there is nothing more to wait for
    pthread_sigmask(SIG_BLOCK, &ends_, nullptr);
    // A peer that hangs up shows up as a failed write, not as a silent death.
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~Signals() {
    if (!second_.joinable()) return;
    pthread_kill(second_.native_handle(), SIGUSR1);
    second_.join();
  }
  int AwaitFirst() const {
    int signal = 0;
    do {
      sigwait(&ends_, &signal);
    } while (signal == SIGUSR1);
    return signal;
  }
  // From now on a signal ends the process at once.
  void ExitOnSecond() {
    second_ = std::thread([this] {
      int signal = 0;
      sigwait(&ends_, &signal);
      if (signal != SIGUSR1) _exit(kExitCutShort);
    });
  }

 private:
  sigset_t ends_{};
  std::thread second_;
};

int Main(int argc, char** argv) {
  // Many threads allocate little: more arenas would only hold more free memory.
  mallopt(M_ARENA_MAX, 2);
  Signals signals;
  CLI::App app("Turns TrainingJobs into running, checkpointed, resizable gangs of pods.", "trainyard-operator");
  app.set_version_flag("--version", "trainyard-operator " TRAINYARD_VERSION);
  app.failure_message([](const CLI::App* /*app*/, const CLI::Error& error) {
    return std::string("trainyard-operator: ") + error.what() + "; see 'trainyard-operator --help'\n";
  });
  Flags flags;
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadFlags;
  }
  if (const Status status = Resolve(flags); !status) {
    std::fprintf(stderr, "trainyard-operator: %s\n", status.error().message.c_str());
    return kExitBadFlags;
  }
  auto manager = Manager::Start(flags.manager);
  if (!manager) {
    spdlog::error("cannot start: {}", manager.error().message);
    return kExitCannotStart;
  }
  const int signal = signals.AwaitFirst();
  spdlog::info("{}: ending; a second signal ends at once", signal == SIGINT ? "SIGINT" : "SIGTERM");
  signals.ExitOnSecond();
  (*manager)->Stop();
  manager->reset();  // connections must be gone before main returns
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  trainyard::http::LoadSystemAuthoritiesOnce();
  return trainyard::Main(argc, argv);
}
