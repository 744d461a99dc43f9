// What the benchmark acts on: a control plane with simulated nodes, a namespace, jobs and bare pods made with a number
// of connections. Thread-safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "operator/kube/kube_cluster.h"
#include "tests/bench/operator/operator_process.h"
#include "tests/cluster/control_plane.h"

namespace trainyard::bench {

class Scene {
 public:
  // `nodes` simulated ones with 8 GPUs each. `program`: the operator. `more_flags` (--name=value) replace the
  // chart's of the same name.
  static Result<std::unique_ptr<Scene>> Make(int nodes, std::string program, std::vector<std::string> more_flags);

  cluster::Cluster& cluster() { return *cluster_; }
  const std::string& ns() const { return ns_; }
  int nodes() const { return nodes_; }
  // The flags that the chart gives the operator with its default values, and more_flags.
  const std::vector<std::string>& flags() const { return flags_; }
  // Pods that the operator creates at once, by those flags: so many connections the baseline gets.
  int connections() const { return connections_; }

  Result<std::unique_ptr<OperatorProcess>> StartOperator();

  // Creates all objects with `connections()` at once. The first error ends it.
  Status Create(cluster::Kind kind, const std::vector<nlohmann::json>& objects);
  // All jobs and pods of the namespace, and waits until they are gone.
  Status Clear();

  // A job of `pods` pods with one GPU each, of a user's own program (so that nothing asks pods for their progress).
  nlohmann::json Job(const std::string& name, int pods) const;
  // Affinity that pins the i-th of many pods, evenly over the nodes.
  nlohmann::json PinTo(int i) const;
  // The pods of the namespace as a user without an operator would create them: no owner, no gate, names of their own.
  Result<std::vector<nlohmann::json>> BareCopies();

 private:
  Scene() = default;
  std::unique_ptr<cluster_test::ControlPlane> plane_;
  std::unique_ptr<kube::KubeCluster> cluster_;
  std::string ns_ = "bench", program_;
  std::vector<std::string> flags_;
  int connections_ = 16, nodes_ = 0;
};

}  // namespace trainyard::bench
