#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/failure.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

// The newest attempt of which there is a pod; those that no attempt of ours can have are swept up.
int64_t NewestAttempt(const Context& c) {
  int64_t newest = 0;
  for (const api::PodSnapshot* pod : c.mine) {
    if (pod->attempt <= kMaxAttempt) newest = std::max(newest, pod->attempt);
  }
  return newest;
}

// A pod of an attempt that this copy of the job has not heard of. Either the copy is old, and whoever wrote the newer
// one is in charge; or the status itself is: restored from a backup, or removed by hand. The write of what is decided
// here tells the two apart: it fails where the copy is old. So nothing is done but that write.
Decision CatchUp(Context& c, int64_t newest) {
  std::string what = "pods of attempt " + std::to_string(newest) + " exist, and the status knew of " +
                     (c.s.attempt == 0 ? "none" : "attempt " + std::to_string(c.s.attempt)) + " only";
  AdoptAttempt(c, newest);
  if (!c.Terminal()) {
    c.Condition(kReady, false, "StatusWasBehind", what);
    c.SetPhase(api::Phase::kRecovering, what + ": it was restored or removed; attempt " + std::to_string(newest + 1) +
                                            " follows when they are gone");
  }
  c.Say("Warning", "StatusWasBehind", what + "; they are being stopped");
  c.Requeue(Milliseconds(1));
  c.out.status = c.s;
  return std::move(c.out);
}

void RunSteps(Context& c) {
  ReadProgress(c);
  KeepFinalizer(c);
  if (c.Terminal()) {
    SweepTerminal(c);
    return RemoveCheckpoints(c);
  }
  if (c.job.meta.deletion_time) {
    StopForDeletion(c);
    ContinueStop(c);
    Release(c);
    SweepOldAttempts(c);
    return RemoveCheckpoints(c);
  }
  JudgePlan(c);
  ObserveExits(c);
  if (c.Terminal()) return SweepTerminal(c);
  StopForSuspend(c);
  StopForPreemption(c);
  StopForResize(c);
  ContinueStop(c);
  Release(c);
  Claim(c);
  WatchNodes(c);
  WatchSize(c);
  Advance(c);
  SweepOldAttempts(c);
}

}  // namespace

Decision Decide(const Input& input, const Options& options) {
  Context c(input, options);
  Decision unchanged;
  unchanged.status = input.job.status;
  if (!input.job.spec.IsOurs()) return unchanged;  // whoever runs it writes its status and makes its pods
  if (int64_t newest = NewestAttempt(c); newest > c.s.attempt) {
    if (c.Fresh()) return CatchUp(c, newest);
    unchanged.refresh_pods = true;
    return unchanged;
  }
  RunSteps(c);
  if (c.out.refresh_pods) {
    // Decided again with fresh pods before anything is written or done.
    unchanged.refresh_pods = true;
    return unchanged;
  }
  c.s.gpus = c.Live() ? TotalGpus(*c.s.placement) : 0;
  c.s.selector = std::string(contract::kLabelJobUid) + "=" + c.job.meta.uid;
  c.s.observed_generation = c.job.meta.generation;
  c.out.status = c.s;
  return std::move(c.out);
}

}  // namespace trainyard::lifecycle
