// `trainyard top`: GPUs by product and domain, nodes, and the queue, read from the API server itself: it works whether
// an operator runs or not. Thread-safety: call from one thread.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "operator/base/clock.h"
#include "operator/base/error.h"
#include "operator/cluster/cluster.h"

namespace trainyard::cli {

struct TopFlags {
  std::string kubeconfig;
  std::string server;  // of an API server that asks for no credentials, such as `kubectl proxy`; wins over kubeconfig
  std::string ns;      // of the jobs of the queue; empty: all
  std::string topology = "Auto";  // as the operator's flag
  std::string catalogue;
  // Quantities that pods ask for with each GPU, as the operator's flags. Without: the operator's defaults for the jobs
  // of the queue, and nothing for the largest gangs.
  std::optional<std::string> cpu_per_gpu, memory_per_gpu;
  std::string output = "text";  // text, wide, json
  bool nodes = false;
  bool queue = false;
};

// What the command needs from outside; tests hand in their own.
struct TopContext {
  std::ostream& out;
  std::ostream& err;
  const Clock& clock;
  std::function<Result<std::unique_ptr<cluster::Cluster>>(const TopFlags& flags)> connect;
};

// Over the Kubernetes API, for TopContext::connect.
Result<std::unique_ptr<cluster::Cluster>> ConnectForTop(const TopFlags& flags);

// Returns the exit code; an error is one line on `err`.
int RunTop(const TopFlags& flags, const TopContext& context);

// The references must outlive `app`.
void AddTopCommand(CLI::App& app, int& exit_code, const TopContext& context);

}  // namespace trainyard::cli
