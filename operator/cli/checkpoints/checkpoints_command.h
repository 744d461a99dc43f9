// `trainyard checkpoints list|verify|show|diff|prune|export|import`: the flags; what they do is in commands.h for a
// directory and in in_cluster.h for a job in a cluster. Thread-safety: call from one thread.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "operator/cli/checkpoints/in_cluster.h"

namespace trainyard::cli {

// Runs a command in a pod (RunInCluster with all but these two given); returns its exit code.
using RunInPod = std::function<int(const InClusterFlags& flags, const std::vector<std::string>& command)>;

// Registers the commands; when one runs it sets `exit_code`. The references must outlive `app`.
void AddCheckpointsCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err, RunInPod run_in_pod);

}  // namespace trainyard::cli
