#include "operator/cli/top/top_command.h"

#include <ostream>

#include "operator/base/files.h"
#include "operator/base/quantity.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/top/read_cluster.h"
#include "operator/cli/top/render.h"
#include "operator/cli/top/top_view.h"
#include "operator/kube/kube_cluster.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::cli {
namespace {

// What the flags say beside where the cluster is.
struct Rules {
  lifecycle::Options options;  // that the operator works by, as far as its flags change them
  api::Amounts per_gpu;        // what pods of the largest gangs ask for with each GPU
};

Status SetRequest(const char* flag, const std::optional<std::string>& text, const char* resource,
                  Result<int64_t> (*parse)(std::string_view), int64_t& option, Rules& rules) {
  if (!text) return {};
  const auto amount = parse(*text);
  if (!amount) return Fail(amount.error().Wrap(flag));
  if (*amount == 0) return Fail(ErrorCode::kInvalidArgument, std::string(flag) + " must be positive");
  option = rules.per_gpu[resource] = *amount;
  return {};
}

Result<Rules> RulesOf(const TopFlags& flags) {
  Rules rules;
  lifecycle::Options& options = rules.options;
  auto topology = placement::Topology::Parse(flags.topology);
  if (!topology) return Fail(topology.error().Wrap("--topology"));
  options.yard.topology = *std::move(topology);
  if (Status status =
          SetRequest("--cpu-per-gpu", flags.cpu_per_gpu, "cpu", ParseMilliQuantity, options.cpu_milli_per_gpu, rules);
      !status) {
    return Fail(status.error());
  }
  if (Status status = SetRequest("--memory-per-gpu", flags.memory_per_gpu, "memory", ParseQuantity,
                                 options.memory_bytes_per_gpu, rules);
      !status) {
    return Fail(status.error());
  }
  if (!flags.catalogue.empty()) {
    const auto text = ReadFile(flags.catalogue);
    if (!text) return Fail(text.error().Wrap("--catalogue"));
    auto catalogue = sizing::Catalogue::FromYaml(*text, flags.catalogue);
    if (!catalogue) return Fail(catalogue.error().Wrap("--catalogue"));
    options.yard.catalogue = std::make_shared<const sizing::Catalogue>(*std::move(catalogue));
  }
  return rules;
}

Result<TopView> Look(const TopFlags& flags, const TopContext& context) {
  const auto rules = RulesOf(flags);
  if (!rules) return Fail(rules.error());
  auto cluster = context.connect(flags);
  if (!cluster) return Fail(cluster.error());
  const auto seen = ReadCluster(**cluster);
  if (!seen) return Fail(seen.error());
  TopView view = Look(*seen, rules->options, context.clock.Now(), rules->per_gpu);
  if (!flags.ns.empty()) {
    std::erase_if(view.queue, [&](const QueueView& entry) { return !entry.job.starts_with(flags.ns + "/"); });
  }
  return view;
}

}  // namespace

Result<std::unique_ptr<cluster::Cluster>> ConnectForTop(const TopFlags& flags) {
  kube::Config config;
  if (!flags.server.empty()) {
    if (!flags.server.starts_with("http://") && !flags.server.starts_with("https://")) {
      return Fail(ErrorCode::kInvalidArgument, "--server: '" + flags.server + "' must begin with http:// or https://");
    }
    config.server = flags.server;
    while (config.server.ends_with('/')) config.server.pop_back();
  } else {
    auto loaded = kube::LoadConfig(flags.kubeconfig);
    if (!loaded) return Fail(loaded.error());
    config = *std::move(loaded);
  }
  kube::KubeOptions options;
  options.user_agent = "trainyard-top";
  auto cluster = kube::KubeCluster::Connect(config, options);
  if (!cluster) return Fail(cluster.error());
  return std::unique_ptr<cluster::Cluster>(*std::move(cluster));
}

int RunTop(const TopFlags& flags, const TopContext& context) {
  const auto view = Look(flags, context);
  if (!view) {
    context.err << "trainyard: " << view.error().message << "\n";
    return ExitCodeOf(view.error());
  }
  if (flags.output == "json") {
    context.out << TopJson(*view).dump(2) << "\n";
  } else {
    context.out << TopText(*view, {.nodes = flags.nodes, .queue = flags.queue, .wide = flags.output == "wide"});
  }
  return kExitOk;
}

void AddTopCommand(CLI::App& app, int& exit_code, const TopContext& context) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* top = app.add_subcommand("top", "Show the GPUs of a cluster, who holds them, and the queue");
  top->add_option("-o,--output", flags->output, "text, wide or json")
      ->check(CLI::IsMember({"text", "wide", "json"}))
      ->capture_default_str();
  top->add_flag("--nodes", flags->nodes, "Each node: who holds its GPUs, why it takes no gang");
  top->add_flag("--queue", flags->queue, "All jobs that wait, and what for");
  top->add_option("-n,--namespace", flags->ns, "Of the jobs of the queue; default: all");
  top->add_option("--kubeconfig", flags->kubeconfig, "Path; default: $KUBECONFIG, the pod's own, ~/.kube/config");
  top->add_option("--server", flags->server, "URL of an API server without a log-in, such as 'kubectl proxy'");
  top->add_option("--topology", flags->topology, "Levels of the topology, as the operator's flag")
      ->capture_default_str();
  top->add_option("--catalogue", flags->catalogue, "File of GPU products (YAML), as the operator's");
  top->add_option("--cpu-per-gpu", flags->cpu_per_gpu,
                  "CPU that pods ask for with each GPU, a quantity: as the operator's flag, and for the largest gangs");
  top->add_option("--memory-per-gpu", flags->memory_per_gpu, "The same of memory");
  top->callback([flags, &exit_code, context] { exit_code = RunTop(*flags, context); });
}

}  // namespace trainyard::cli
