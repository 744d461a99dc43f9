// What every test of gangs stands on: a real API server that writes down all that happens to pods, nodes and jobs,
// nodes that a test may harm, and the real trainyard-operator. When a test ends, that record is held against the
// promises of placement (gang_history.h). Thread-safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/faults/fault_fixture.h"
#include "tests/cluster/gangs/gang_history.h"

namespace trainyard::gangs {

using faults::AttemptOf;
using faults::kPatience;
using faults::PhaseOf;
using nlohmann::json;

class GangTest : public faults::FaultTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Nodes of eight GPUs each, and kubelets with these habits; they are at work where their node is.
  void MakeNodes(int count, faults::KubeletHabits habits = {});
  // Starts the operator, without leader election, and waits until it watches.
  void StartWatching();
  // A gang of `pods` pods of a user's own program with `per_node` GPUs each. `more` is merged into its spec.
  void SubmitGang(const std::string& name, int pods, int per_node, const json& more = json::object());
  void PatchSpec(const std::string& name, const json& spec);  // a merge patch
  // All pods of the job exit with this code.
  void Finish(const std::string& name, int exit_code = 0);
  // Names of the nodes of the job's placement, in rank order.
  std::vector<std::string> NodesOf(const json& job) const;
  // Awaits Running at any attempt, and that all its pods are bound where the status says.
  json AwaitUp(const std::string& name, int64_t attempt);
  // Awaits the first reason of a job that waits.
  json AwaitReason(const std::string& name);
  // Restarts that were counted against the job.
  int64_t Paid(const std::string& name);
  // kill -9, and a new operator at once.
  void KillOperator();
  // A pod of somebody else on a node, past the scheduler.
  void TakeGpus(const std::string& name, const std::string& node, int gpus);
  // A ResourceQuota "gpus" of the namespace, in force when this returns.
  void SetQuota(int gpus);
  // The history of this test so far, complete up to now.
  GangHistory History();

  Rules rules_;
  std::unique_ptr<faults::SimulatedNodes> nodes_;
};

}  // namespace trainyard::gangs
