// What the steps of one decision share. Each step reads the input and the status as the steps before it left it, and
// adds to the decision. Private to the room. Thread-safety: one thread per Context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "operator/api/names.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

// Values of status.stop.reason.
inline constexpr const char* kStopResize = "Resize";
inline constexpr const char* kStopSuspend = "Suspend";
inline constexpr const char* kStopDeleted = "Deleted";
inline constexpr const char* kStopFailed = "Failed";  // the attempt ended by itself; its exits are already counted
inline constexpr const char* kStopUndo = "Undo";      // the gang did not come up
inline constexpr const char* kStopPreempted = "Preempted";  // a more important job needs its GPUs

// Reason of Planned=False: a directory that the job would take is another's.
inline constexpr const char* kCheckpointPathInUse = "CheckpointPathInUse";

// Numbers above it are nobody's attempts, and would overflow by and by.
inline constexpr int64_t kMaxAttempt = 1'000'000'000;

struct Context {
  Context(const Input& input, const Options& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Input& in;
  const Options& opt;
  api::TrainingJob job;  // defaults applied; its status is the one being decided
  api::JobStatus& s;
  Decision out;
  // Pods of this job: its label and its owner reference. Others with our label are not ours to touch.
  std::vector<const api::PodSnapshot*> mine;
  const api::PodSnapshot* removal = nullptr;  // the one that removes the checkpoints of a deleted job; not in `mine`
  // The live attempt's pods by node rank, null where none exists; empty when nothing is claimed.
  std::vector<const api::PodSnapshot*> ranks;
  std::optional<api::PlanStatus> plan;  // answers this generation; see planning.cpp
  std::string plan_problem;             // why there is none
  std::string note;                     // what people should know beside "training on ..."
  bool settling = false;                // a rank failed and its cause may still show: the attempt is not judged yet

  bool Terminal() const { return api::IsTerminal(s.phase); }
  bool Live() const { return s.placement.has_value() && !Terminal(); }
  bool Stopping() const { return Live() && s.stop.has_value() && s.stop->attempt == s.attempt; }
  bool AllExist() const;

  // Ranks the pods of the live attempt; again after a claim.
  void RankPods();
  // True if `pods` came straight from the API server; else asks for that and the caller must not go on.
  bool Fresh();
  // Its process can do no more harm: deleted, terminal, or deleted on a node that is lost (docs/lifecycle.md).
  bool Gone(const api::PodSnapshot& pod);
  // The node object is gone, or has been unreachable for longer than podTerminationTimeout.
  bool NodeLost(const std::string& name);
  const api::NodeSnapshot* FindNode(const std::string& name);
  const placement::Yard& Yard();
  // Valid until the next call; see Surroundings::Line().
  const placement::Line& Line(const placement::WaitingGang* asking = nullptr);
  bool MayBePreempted();
  std::vector<PathNeighbour> PathNeighbours(const PathUser& asking);
  // What the other jobs of the cluster have run through.
  api::Exposure OthersExposure();
  // Of the class that the job names; of the default one where there is no such class.
  api::PriorityClass Priority();
  Result<api::PriorityClass> NamedPriority();

  void Requeue(Milliseconds after);
  void RequeueAt(TimePoint when) { Requeue(when - in.now); }
  void Say(const char* type, std::string reason, std::string message);
  void Act(Action::Kind kind, std::string name, std::string uid = "", nlohmann::json object = nullptr);
  bool Condition(std::string_view type, bool value, std::string reason, std::string message);
  void SetPhase(api::Phase phase, std::string reason);

 private:
  std::unordered_map<std::string_view, const api::NodeSnapshot*> nodes_;
  std::optional<placement::Yard> yard_;
  placement::Line line_;
};

std::string Plural(int64_t count, std::string_view noun);  // "1 pod", "2 pods"
int64_t TotalGpus(const api::PlacementStatus& placement);

}  // namespace trainyard::lifecycle
