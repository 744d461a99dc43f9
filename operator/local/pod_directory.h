// The directory of one pod: log, resolved job, run directory, termination log, and its volumes as links.
// Thread-safety: plain values; Make() from one thread at a time per pod.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"

namespace trainyard::local {

class PodDirectory {
 public:
  PodDirectory(const std::filesystem::path& state_dir, const std::string& pod_name)
      : root_(state_dir / "pods" / pod_name) {}

  std::filesystem::path root() const { return root_; }
  std::filesystem::path log() const { return root_ / "log"; }
  std::filesystem::path job_file() const { return root_ / "job.json"; }
  std::filesystem::path run() const { return root_ / "run"; }
  std::filesystem::path volumes() const { return root_ / "volumes"; }
  std::filesystem::path termination_log() const { return root_ / "termination-log"; }

  // Makes all of it afresh; what an earlier pod of this name left is removed (volumes are links and stay).
  // persistentVolumeClaim: `claims`, else claims_root/<claim>; hostPath: the path; emptyDir: a directory of the pod's
  // own; downwardAPI: files with the fields. A volume mounted below /volumes appears under its name there. Errors:
  // kInvalidArgument for other volumes, else what the file system said.
  Status Make(const nlohmann::json& pod, const std::map<std::string, std::filesystem::path>& claims,
              const std::filesystem::path& claims_root) const;
  // What the container left in its termination log, at most 4,096 bytes; with terminationMessagePolicy
  // FallbackToLogsOnError and nothing there, the end of the log of a failed container.
  std::string ReadTerminationMessage(const nlohmann::json& pod, bool failed) const;

 private:
  const std::filesystem::path root_;
};

}  // namespace trainyard::local
