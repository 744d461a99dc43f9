// The operator as one process: connections, leader election, a controller per term, health and metrics, and the order
// in which all of it ends. Thread-safety: Start() and Stop() from one thread.
#pragma once

#include <memory>
#include <string>

#include "operator/base/clock.h"
#include "operator/controller/controller.h"
#include "operator/kube/kube_cluster.h"
#include "operator/runtime/health.h"
#include "operator/runtime/leader_election.h"

namespace trainyard {

struct ManagerOptions {
  std::string version;
  std::string kubeconfig;  // empty: as kube::LoadConfig looks for it
  // API servers protect themselves by priority and fairness; this only bounds what a mistake of ours could do. At 50
  // per second, as clients once had it, a gang of 512 pods would take 20 s to create and to start.
  kube::KubeOptions kube{.qps = 500, .burst = 1000};
  Milliseconds lease_timeout{5'000};
  bool leader_elect = true;
  // Namespace and identity may be empty: the namespace of the configuration, and the host's name with something random.
  runtime::LeaderElectionOptions election{.ns = "", .name = "trainyard-operator", .identity = ""};
  runtime::BindAddress metrics{"", 8080};
  runtime::BindAddress probes{"", 8081};
  controller::ControllerOptions controller;
  Milliseconds drain_timeout{30'000};
};

class Manager {
 public:
  // Reads the configuration, binds both addresses and begins to campaign. It makes no call that must succeed: an API
  // server that is away is waited for. Errors: those of kube::LoadConfig and http::Server, each names what to do.
  static Result<std::unique_ptr<Manager>> Start(ManagerOptions options);
  ~Manager();  // Stop()
  // Not ready; workers drain; events are flushed; the lease goes back; watches end; servers stop.
  void Stop();

 private:
  class Impl;
  explicit Manager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
