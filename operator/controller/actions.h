// Carries out the actions of a decision, each safe to repeat: a create that meets its own earlier result is a success,
// a deletion or un-gating never touches another object than the one it was decided for. Thread-safety: all members from
// any thread.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/cluster/cluster.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {

class ActionRunner {
 public:
  ActionRunner(cluster::Cluster& cluster, int parallel) : cluster_(cluster), parallel_(parallel) {}

  // Runs `actions` in order; neighbours of the same kind run `parallel` at a time. Stops after the kind in which one
  // failed and returns the first failure.
  Status Run(const api::TrainingJob& job, const std::vector<lifecycle::Action>& actions);
  // Best effort: an event that cannot be written is logged and forgotten. Returns how many were written.
  int Send(const api::TrainingJob& job, const std::vector<lifecycle::Event>& events, TimePoint now);

 private:
  Status RunOne(const api::TrainingJob& job, const lifecycle::Action& action);
  Status Create(const api::TrainingJob& job, cluster::Kind kind, const lifecycle::Action& action);
  Status Ungate(const cluster::ObjectKey& key, const std::string& uid);

  cluster::Cluster& cluster_;
  const int parallel_;
};

}  // namespace trainyard::controller
