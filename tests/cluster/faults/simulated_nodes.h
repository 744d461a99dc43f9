// GPU nodes of a real API server that exist as objects only, and the part of their kubelets that the operator sees:
// bound pods start to run, deleted pods go, containers exit with the code they are told. The real scheduler binds the
// pods. Everything is done directly, never through the proxy. Thread-safety: all members from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/cluster/informer.h"
#include "operator/kube/kube_cluster.h"

namespace trainyard::faults {

// A GPU as jobs name it and as nodes label it.
struct GpuModel {
  std::string product;
  std::string label;
};

// Nodes with eight GPUs each, kept Ready until the end of the program.
class SimulatedNodes {
 public:
  static Result<std::unique_ptr<SimulatedNodes>> Start(cluster::Cluster& direct, int count, const std::string& prefix,
                                                       const GpuModel& gpu);
  ~SimulatedNodes();  // deletes the nodes
  const std::vector<std::string>& names() const { return names_; }

 private:
  explicit SimulatedNodes(cluster::Cluster& direct) : direct_(direct) {}
  Status Beat(const std::string& name);

  cluster::Cluster& direct_;
  std::vector<std::string> names_;
  std::mutex mutex_;  // guards stop_
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread heart_;
};

// The kubelets of one namespace.
class SimulatedKubelet {
 public:
  SimulatedKubelet(cluster::Cluster& direct, const std::string& ns);
  ~SimulatedKubelet();

  using Pods = std::map<cluster::ObjectKey, std::shared_ptr<const nlohmann::json>>;
  // Waits until `condition` holds of the namespace's pods as the API server has them. False: timeout.
  bool AwaitPods(Milliseconds timeout, const std::function<bool(const Pods&)>& condition) const;
  std::vector<nlohmann::json> Snapshot() const;
  // Every pod that has ever been there, by UID: its name.
  std::map<std::string, std::string> Seen() const;
  // The containers of all pods that run exit with this code.
  Status Finish(int exit_code);
  // The pod is gone at once, as if its node had been asked by somebody else.
  Status Kill(const std::string& name);

 private:
  void OnPod(const cluster::ObjectKey& key, const nlohmann::json& pod);

  cluster::Cluster& direct_;
  const std::string ns_;
  mutable std::mutex mutex_;  // guards seen_
  std::map<std::string, std::string> seen_;
  std::unique_ptr<cluster::Informer<nlohmann::json>> pods_;
};

}  // namespace trainyard::faults
