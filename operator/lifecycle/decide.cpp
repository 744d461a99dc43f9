#include <algorithm>

#include "operator/lifecycle/lifecycle.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

// A pod of an attempt that this copy of the job has not heard of: the copy is old, and whoever wrote the newer one is
// in charge. Nothing that needs no status write may be decided from it.
bool FromTheFuture(const Context& c) {
  return std::any_of(c.mine.begin(), c.mine.end(), [&c](const auto* pod) { return pod->attempt > c.s.attempt; });
}

void RunSteps(Context& c) {
  ReadProgress(c);
  if (c.Terminal()) return SweepTerminal(c);
  if (c.job.meta.deletion_time) {
    StopForDeletion(c);
    ContinueStop(c);
    Release(c);
    return SweepOldAttempts(c);
  }
  JudgePlan(c);
  ObserveExits(c);
  if (c.Terminal()) return SweepTerminal(c);
  StopForSuspend(c);
  StopForResize(c);
  ContinueStop(c);
  Release(c);
  Claim(c);
  Advance(c);
  SweepOldAttempts(c);
}

}  // namespace

Decision Decide(const Input& input, const Options& options) {
  Context c(input, options);
  Decision unchanged;
  unchanged.status = input.job.status;
  if (!input.job.spec.IsOurs()) return unchanged;  // whoever runs it writes its status and makes its pods
  if (FromTheFuture(c)) {
    unchanged.requeue_after = Milliseconds(1000);
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
