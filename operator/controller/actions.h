// Carries out the actions of a decision, each safe to repeat: a create that meets its own earlier result is a success,
// a deletion or un-gating never touches another object than the one it was decided for. Thread-safety: all members from
// any thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/cluster/cluster.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/runtime/task_pool.h"

namespace trainyard::controller {

class ActionRunner {
 public:
  // `on_created` hears of each object that was created or found to be there already, as the server has it.
  using OnCreated = std::function<void(cluster::Kind kind, const nlohmann::json& object)>;
  ActionRunner(cluster::Cluster& cluster, runtime::TaskPool& pool, OnCreated on_created)
      : cluster_(cluster), pool_(pool), on_created_(std::move(on_created)) {}

  // Runs `actions` in order; neighbours of the same kind at once, as far as the pool goes. Begins nothing more once one
  // has failed, and returns the first failure.
  Status Run(const api::TrainingJob& job, const std::vector<lifecycle::Action>& actions);

 private:
  Status RunOne(const api::TrainingJob& job, const lifecycle::Action& action);
  Status Create(const api::TrainingJob& job, cluster::Kind kind, const lifecycle::Action& action);
  Status Ungate(const cluster::ObjectKey& key, const std::string& uid);
  // Adds or removes the job's finalizer, if the job is still the version that this decision has written.
  Status SetFinalizer(const api::TrainingJob& job, bool wanted);

  cluster::Cluster& cluster_;
  runtime::TaskPool& pool_;
  const OnCreated on_created_;
};

}  // namespace trainyard::controller
