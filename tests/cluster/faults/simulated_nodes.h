// GPU nodes of a real API server that exist as objects only, and the part of their kubelets that the operator sees:
// bound pods start to run, deleted pods go, containers exit with the code they are told. The real scheduler binds the
// pods. Everything is done directly, never through the proxy. Thread-safety: all members from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

// Nodes with eight GPUs each, kept Ready, or what a test makes of them, until the end of this object.
class SimulatedNodes {
 public:
  static Result<std::unique_ptr<SimulatedNodes>> Start(cluster::Cluster& direct, int count, const std::string& prefix,
                                                       const GpuModel& gpu);
  ~SimulatedNodes();  // deletes the nodes
  const std::vector<std::string>& names() const { return names_; }

  // What becomes of one node; the API server knows when these return.
  Status SetGpus(const std::string& name, int64_t allocatable);
  // "True", "False" (its kubelet says so) or "Unknown" (it is silent), for so long already.
  Status SetReady(const std::string& name, const std::string& ready, Milliseconds since = Milliseconds(0));
  Status SetCondition(const std::string& name, const std::string& type, const std::string& status);
  Status Cordon(const std::string& name, bool cordoned);
  Status Taint(const std::string& name, const std::string& key, const std::string& effect);
  Status Remove(const std::string& name);  // the object is deleted
  Status Return(const std::string& name);  // it is there again, as new
  // Its kubelet is at work.
  bool Serves(const std::string& name) const;

 private:
  struct State {
    bool there = true;
    int64_t gpus = 0;
    std::string ready = "True", ready_since;
    std::map<std::string, std::string> conditions;
  };
  SimulatedNodes(cluster::Cluster& direct, GpuModel gpu) : direct_(direct), gpu_(std::move(gpu)) {}
  Status Change(const std::string& name, const std::function<void(State&)>& change);
  Status Beat(const std::string& name);

  cluster::Cluster& direct_;
  const GpuModel gpu_;
  std::vector<std::string> names_;
  mutable std::mutex mutex_;  // guards stop_, states_
  std::condition_variable wake_;
  bool stop_ = false;
  std::map<std::string, State> states_;
  std::thread heart_;
};

// What the kubelets of a namespace do beside the least: each may be empty.
struct KubeletHabits {
  std::function<bool(const std::string& node)> serves;  // false: nothing happens to the pods of this node
  // How long the containers of a pod run until they exit with 0; empty or nothing: until they are told.
  std::function<std::optional<Milliseconds>(const nlohmann::json& pod)> run_time;
  // Why the kubelet does not admit a pod that was bound to its node, as UnexpectedAdmissionError; empty: it does.
  std::function<std::string(const nlohmann::json& pod)> refuses;
  std::optional<int> exit_on_term;  // running containers of a deleted pod exit with this before it goes
  // Running containers of a deleted pod are still saving what they have: they end when somebody looks again.
  std::function<bool(const nlohmann::json& pod)> saves;
};

// The kubelets of one namespace.
class SimulatedKubelet {
 public:
  SimulatedKubelet(cluster::Cluster& direct, const std::string& ns, KubeletHabits habits = {});
  ~SimulatedKubelet();

  using Pods = std::map<cluster::ObjectKey, std::shared_ptr<const nlohmann::json>>;
  // Waits until `condition` holds of the namespace's pods as the API server has them. False: timeout.
  bool AwaitPods(Milliseconds timeout, const std::function<bool(const Pods&)>& condition) const;
  std::vector<nlohmann::json> Snapshot() const;
  // Every pod that has ever been there, by UID: its name.
  std::map<std::string, std::string> Seen() const;
  // The containers of all pods that run, or of those that `which` names, exit with this code.
  Status Finish(int exit_code, const std::function<bool(const nlohmann::json&)>& which = {});
  // Looks at all pods again: a node serves now that did not, or what was being saved is.
  void LookAgain();
  // The pod is gone at once, as if its node had been asked by somebody else.
  Status Kill(const std::string& name);

 private:
  void OnPod(const cluster::ObjectKey& key, const nlohmann::json& pod);
  bool Serves(const nlohmann::json& pod) const;
  Status Exit(const nlohmann::json& pod, int exit_code);
  void EndWhatHasRun();
  // Ends a pod whose time is over. False: it does not have its end yet, and has to be looked at again.
  bool End(const std::string& uid, const cluster::ObjectKey& key);

  using Instant = std::chrono::steady_clock::time_point;
  cluster::Cluster& direct_;
  const std::string ns_;
  const KubeletHabits habits_;
  mutable std::mutex mutex_;  // guards all below but the threads
  std::map<std::string, std::string> seen_;
  std::map<std::string, std::pair<Instant, cluster::ObjectKey>> ends_;  // by UID: when what runs exits with 0
  bool stop_ = false;
  std::condition_variable wake_;
  std::unique_ptr<cluster::Informer<nlohmann::json>> pods_;
  std::thread timer_;
};

}  // namespace trainyard::faults
