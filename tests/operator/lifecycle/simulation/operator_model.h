// One operator: watch caches that lag, and one reconcile under way that may be overtaken, stopped between any two of
// its calls, or die. It keeps the protocol of lifecycle.h and nothing else. Thread-safety: one thread.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "operator/lifecycle/lifecycle.h"
#include "tests/operator/lifecycle/simulation/world.h"

namespace trainyard::lifecycle::simulation {

Options SimulationOptions();

// Adds the job to those that wait, or to those that run.
void Stand(const api::TrainingJob& job, std::vector<placement::WaitingGang>& waiting,
           std::vector<placement::RunningGang>& running);

class OperatorModel {
 public:
  OperatorModel(World& world, std::string name);

  // Does one thing: follows a watch a little, or makes the next call of the reconcile under way, or begins one.
  void Step();
  // Caches as of now, whole reconcile of one job. True if it wrote or did anything.
  bool ReconcileNow(const std::string& job);
  // Ends what is under way, one call after the other.
  void Drain();
  // The process dies and a new one starts with fresh lists.
  void Restart();

  const std::optional<Milliseconds>& requeue() const { return requeue_; }

 private:
  enum class Stage { kDecide, kListPods, kWrite, kAct };
  struct Reconcile {
    Stage stage = Stage::kDecide;
    Input input;
    Decision decision;
    size_t next_action = 0;
    bool did = false;
  };

  void Begin(const std::string& job);
  void Advance();  // one call
  void Sync();
  void FollowWatches();

  World& world_;
  std::string name_;
  Cache<api::TrainingJob> jobs_;
  Cache<api::PodSnapshot> pods_;
  Cache<api::NodeSnapshot> nodes_;
  std::map<std::string, api::TrainingJob> written_;  // overlay: claims just written that the cache does not show yet
  std::optional<Reconcile> under_way_;
  std::optional<Milliseconds> requeue_;
  std::array<int64_t, 3> stalled_{};  // steps for which the watches of jobs, pods and nodes still hang
};

}  // namespace trainyard::lifecycle::simulation
