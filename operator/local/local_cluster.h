// A cluster in memory, for laptops and tests: an object store with the API server's semantics, a scheduler that binds
// un-gated pods to the node their affinity pins, and a kubelet per simulated node that runs each pod's container as a
// local process with its own directory and log. Nothing outlives this object (or a kill -9 of its process).
// Thread-safety: all members may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "operator/cluster/cluster.h"
#include "operator/cluster/progress.h"

namespace trainyard::local {

struct LocalOptions {
  // Everything written goes below: pods/<name>/{log,job.json,run/,volumes/}, volumes/<claim>/.
  std::filesystem::path state_dir;
  int nodes = 1;  // local-0, local-1, ...
  int64_t gpus_per_node = 1;
  int64_t gpu_memory_mib = 0;  // label nvidia.com/gpu.memory; 0: the machine's memory shared out over all GPUs
  // Where trainyard-launch and trainyard-trainer lie; empty: beside the running program.
  std::filesystem::path program_dir;
  // persistentVolumeClaim name -> directory; others become state_dir/volumes/<claim>.
  std::map<std::string, std::filesystem::path> volumes;
  // Changes remembered per kind; a watch from before them is kGone.
  size_t watch_window = 4096;
};

struct NodeOptions {
  std::string name;
  int64_t gpus = 1;
  int64_t gpu_memory_mib = 0;
  std::map<std::string, std::string> labels;  // added to the usual ones, and win
};

class LocalCluster : public cluster::Cluster {
 public:
  // Errors: kInvalidArgument for options, kPermissionDenied or kResourceExhausted when state_dir cannot be made.
  static Result<std::unique_ptr<LocalCluster>> Start(LocalOptions options);
  // Kills what runs (SIGTERM first if Shutdown() was not called), joins the threads.
  ~LocalCluster() override;
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) override;
  Result<nlohmann::json> Get(cluster::Kind kind, const cluster::ObjectKey& key) override;
  Result<nlohmann::json> Create(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Replace(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> ReplaceStatus(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Patch(cluster::Kind kind, const cluster::ObjectKey& key, cluster::PatchType type,
                               const nlohmann::json& patch, bool status) override;
  Status Delete(cluster::Kind kind, const cluster::ObjectKey& key, const cluster::DeleteOptions& options) override;
  Status DeleteCollection(cluster::Kind kind, const cluster::ListOptions& options,
                          std::optional<int64_t> grace_seconds) override;
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind kind, const cluster::WatchOptions& options) override;

  // ---- the simulated machines. Errors: kNotFound, kAlreadyExists
  // -----------------------------------------------------
  Status AddNode(const NodeOptions& options);
  // The Node object goes; its processes are killed and its pods deleted, as a cloud does with a machine.
  Status RemoveNode(const std::string& name);
  Status Cordon(const std::string& name, bool unschedulable);
  // The machine dies: its processes are killed, the Node turns NotReady, and its pods stay as they were last reported
  // until someone deletes them with grace 0 or the Node is removed.
  Status KillNode(const std::string& name);
  // A dead machine comes back empty: Ready again, and pods that were on it are reported as Failed.
  Status ReviveNode(const std::string& name);

  // state_dir/pods/<name>
  std::filesystem::path PodDirectory(const std::string& pod_name) const;
  std::filesystem::path PodLog(const std::string& pod_name) const;

  // Stops every pod (SIGTERM, up to `grace`, SIGKILL) and starts no more.
  void Shutdown(Milliseconds grace);

 private:
  class Impl;
  explicit LocalCluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads RUN_DIR/status.json of the rank-0 pod.
class LocalProgressSource : public cluster::ProgressSource {
 public:
  explicit LocalProgressSource(const LocalCluster& cluster) : cluster_(cluster) {}
  Result<nlohmann::json> Read(const api::PodSnapshot& rank0_pod) override;

 private:
  const LocalCluster& cluster_;
};

}  // namespace trainyard::local
