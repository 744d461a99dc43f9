// Stopping on purpose: the reason is in status before the first delete, so that exits after it never count; the
// attempt ends when its pods are gone, and only then.
#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/failure.h"
#include "operator/lifecycle/pod_spec.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

// Pods of a failed attempt that ended are kept for their logs; an intended stop leaves none.
bool ToDelete(const Context& c, const api::PodSnapshot& pod) {
  const bool failed = c.s.stop->reason == kStopFailed;
  // Somebody else may have given it all the time of a pod that saves: once, that is cut to what a lost one gets.
  if (pod.deleting) return failed && !pod.Terminal() && !c.in.job.status.stop;
  return !failed || !pod.Terminal();
}

// When the pods of the attempt must be gone: by the grace that they were made with, or that they are deleted with.
TimePoint DueOf(const Context& c, std::string_view reason) {
  int64_t grace = reason == kStopUndo ? LostGraceSeconds(c.job) : 0;
  for (const api::PodSnapshot* pod : c.ranks) {
    if (pod != nullptr && reason != kStopUndo) grace = std::max(grace, pod->grace_seconds);
  }
  return c.in.now + std::chrono::seconds(grace) + c.opt.pod_termination_timeout;
}

int64_t NotGone(Context& c) {
  return std::count_if(c.mine.begin(), c.mine.end(), [&c](const auto* pod) { return !c.Gone(*pod); });
}

}  // namespace

void Stop(Context& c, const char* reason, const std::string& why) {
  std::string attempt = "attempt " + std::to_string(c.s.attempt);
  c.s.stop = api::StopStatus{reason, c.s.attempt, DueOf(c, reason)};
  c.Condition(kReady, false, "Stopping", attempt + " is being stopped: " + why);
  if (reason == std::string(kStopUndo)) {
    c.Condition(kPlaced, false, "Undone", why);
    c.SetPhase(api::Phase::kPlacing, attempt + " was taken back: " + why);
    c.Say("Warning", "Undone", attempt + " was taken back: " + why);
  } else {
    c.s.reason = "stopping " + attempt + ": " + why;
    c.Say("Normal", std::string("Stopping") + reason, attempt + ": " + why);
  }
  ContinueStop(c);
}

void Undo(Context& c, const std::string& why, const std::vector<size_t>& held_up) {
  c.s.undone_generation = c.job.meta.generation;
  for (size_t rank : held_up) BlameNode(c, c.s.placement->nodes[rank].node);
  UndoForNodes(c, why);
}

void UndoForNodes(Context& c, const std::string& why) {
  CountFailure(c);
  Stop(c, kStopUndo, why);
}

void StopForDeletion(Context& c) {
  if (!c.Live() || c.Stopping()) return;
  Stop(c, kStopDeleted, "the job is being deleted");
}

void StopForSuspend(Context& c) {
  if (!c.job.spec.suspend) {
    if (!ConditionIs(c.s, kSuspended, "True")) return;
    c.Condition(kSuspended, false, "Resumed", "spec.suspend is not set");
    return c.SetPhase(api::Phase::kPending, "resumed");
  }
  if (c.Live()) {
    if (!c.Stopping()) Stop(c, kStopSuspend, "spec.suspend is set");
    return;
  }
  if (NotGone(c) > 0) return;  // of an attempt that the status had lost: they are swept up first
  c.s.retry_after.reset();     // a resume starts at once
  c.Condition(kSuspended, true, "Suspended", "spec.suspend is set");
  c.SetPhase(api::Phase::kSuspended, "spec.suspend is set" + LostWork(c, c.s.attempt));
}

void DeleteLost(Context& c, const api::PodSnapshot& pod) {
  c.Act(Action::Kind::kDeletePod, pod.name, pod.uid);
  const api::Condition* ready = FindCondition(c.s, kReady);  // why its attempt ended, until the next one starts
  c.out.actions.back().grace_seconds = EndedGraceSeconds(c, ready == nullptr ? "" : ready->reason);
}

void ContinueStop(Context& c) {
  if (!c.Stopping() || c.out.refresh_pods) return;
  if (c.s.stop->reason != kStopFailed && c.s.stop->reason != kStopUndo) {
    if (std::string lost = TellLostWork(c); !lost.empty()) c.s.reason = lost;
  }
  auto each = [&c](auto&& act) {
    for (const api::PodSnapshot* pod : c.mine) {
      if (pod->attempt == c.s.attempt && ToDelete(c, *pod)) act(*pod);
    }
  };
  if (c.s.stop->reason == kStopFailed) {
    each([&c](const auto& pod) { DeleteLost(c, pod); });
    return;
  }
  bool any = false;
  each([&any](const auto&) { any = true; });
  bool asked = std::any_of(c.out.actions.begin(), c.out.actions.end(),
                           [](const Action& a) { return a.kind == Action::Kind::kDeleteAllPods; });
  if (!any || asked) return;
  c.Act(Action::Kind::kDeleteAllPods, "");
  if (c.s.stop->reason == kStopUndo) c.out.actions.back().grace_seconds = LostGraceSeconds(c.job);
}

void Release(Context& c) {
  if (!c.Stopping() || c.out.refresh_pods) return;
  // A stop of this very decision is written first, so that whoever takes over knows of it.
  if (!c.in.job.status.stop) return c.Requeue(Milliseconds(1));
  if (NotGone(c) > 0 || !c.Fresh()) return;
  std::string reason = c.s.stop->reason;
  SizeIsGone(c);
  c.s.placement.reset();
  c.s.stop.reset();
  c.s.started = false;
  c.s.placing_since.reset();
  c.s.ungated_at.reset();
  c.RankPods();
  c.Condition(kPlaced, false, "Stopped", "attempt " + std::to_string(c.s.attempt) + " has stopped: " + reason);
  if (reason == kStopPreempted) {
    c.SetPhase(api::Phase::kQueued, "attempt " + std::to_string(c.s.attempt) + " has made room, the job waits again" +
                                        LostWork(c, c.s.attempt));
  }
  StopForSuspend(c);
}

}  // namespace trainyard::lifecycle
