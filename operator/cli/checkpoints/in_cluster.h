// A checkpoints command on the volume of a job in a cluster: a short-lived pod mounts the volume, runs `trainyard
// checkpoints` from the trainer's image, and is deleted in the end, also on Ctrl-C. Its log is the answer.
// Thread-safety: call from one thread.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/kube/config.h"

namespace trainyard::cli {

struct InClusterFlags {
  std::string job;  // name of the TrainingJob
  std::string ns;   // empty: that of the configuration
  std::string kubeconfig, server;
  std::string image;                    // empty: the trainer's image of the job
  int64_t start_timeout_seconds = 120;  // for the pod to run
};

struct InClusterContext {
  std::ostream& out;
  std::ostream& err;
  const Clock& clock;
  std::function<bool(Milliseconds)> wait;  // false: interrupted
};

// How to reach the cluster that the flags name. Errors: of kube::LoadConfig.
Result<kube::Config> ClusterConfig(const InClusterFlags& flags);

// `command` is what follows `trainyard checkpoints`; its word kDirectory stands for the job's checkpoint directory in
// the pod, also as the beginning of a word, and a word that begins with kOnVolume goes on with VOLUME:PATH, a place on
// a volume of the job. Returns the exit code of the command, kExitInterrupted after Ctrl-C, kExitNotFound without the
// job, kExitUnreachable when the pod does not come to run in time.
inline constexpr const char* kDirectory = "{}";
inline const std::string kOnVolume = "{volume}";
int RunInCluster(const kube::Config& config, const InClusterFlags& flags, const std::vector<std::string>& command,
                 const InClusterContext& context);

}  // namespace trainyard::cli
