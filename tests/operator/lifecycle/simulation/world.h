// A model of an API server, a scheduler, kubelets, a garbage collector and the misfortunes of a cluster: just enough of
// their semantics for what lifecycle relies on. Time stands still unless moved. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "operator/lifecycle/lifecycle.h"
#include "tests/operator/lifecycle/simulation/store.h"

namespace trainyard::lifecycle::simulation {

// Those that jobs name; the others have priority 0.
const std::vector<api::PriorityClass>& SimulationClasses();

// What a history has learnt of one attempt of one job, for the invariants.
struct AttemptFacts {
  std::vector<api::PlacedNode> nodes;  // as claimed
  bool faulted = false;                // something went wrong that nobody of ours intended
};

class World {
 public:
  explicit World(uint64_t seed);

  // ---- chance
  uint64_t Random() { return random_(); }
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }

  // ---- the API as operators use it
  // False: conflict, or the job is gone.
  bool WriteStatus(const std::string& job, const std::string& resource_version, const api::JobStatus& status);
  // False: refused; the caller stops and decides again.
  bool Execute(const Action& action, const api::TrainingJob& job);

  // ---- what users do
  void CreateJob(const std::string& name, int64_t gpus);
  void Edit(const std::string& job, const std::function<void(api::Spec&)>& edit);
  void DeleteJob(const std::string& job, bool foreground);

  // ---- the cluster's own motion; each call moves one thing a little
  bool StepPod(const std::string& name);  // scheduler and kubelet; true if anything changed
  bool CollectGarbage();                  // pods whose owner is gone or deleted, jobs whose pods are gone
  void Fault();
  void HealEverything();                       // nodes back, no foreign pods: from here on nothing goes wrong
  void FinishRunning(const std::string& job);  // every rank of its running attempt exits with 0

  void Pass(Milliseconds time) { now += time; }
  void Trace(const std::string& line);

  TimePoint now;
  Store<api::TrainingJob> jobs;
  Store<api::PodSnapshot> pods;
  Store<api::NodeSnapshot> nodes;
  std::set<std::string> services;                                // UIDs of their jobs
  std::map<std::string, std::map<int64_t, AttemptFacts>> facts;  // by job UID and attempt
  std::set<std::string> lost_pods;      // UIDs that were gone by the rule of the lost node, whatever became of them
  std::set<std::string> touched_nodes;  // ever unreachable or deleted
  int64_t preempted = 0;                // stops for a more important job
  std::string violation;                // the first rule that was broken
  bool calm = false;                    // nothing goes wrong any more, and training stands still
  bool tracing = false;
  std::vector<std::string> trace;

 private:
  void Violate(const std::string& what);
  void CheckWrite(const api::TrainingJob& old_job, const api::JobStatus& status);
  void PutPod(api::PodSnapshot pod);
  void DeletePod(const std::string& name);
  void Exit(const std::string& name, int code, bool fault);
  bool Bind(api::PodSnapshot pod);
  bool NodeUp(const std::string& name) const;
  void LoseNode(const std::string& name);
  void RemoveNode(const std::string& name);
  void ReturnNode(const std::string& name);
  std::string PickPod(const std::function<bool(const api::PodSnapshot&)>& wanted);
  std::string PickNode();
  std::string NextVersion() { return std::to_string(++version_); }

  std::mt19937_64 random_;
  int64_t version_ = 0;
  int64_t next_uid_ = 0;
};

}  // namespace trainyard::lifecycle::simulation
