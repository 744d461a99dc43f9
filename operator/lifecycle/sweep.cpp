// What attempts leave behind: pods of earlier attempts, and everything that a finished job no longer needs. Each delete
// carries the UID that was seen.
#include "operator/api/names.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

// The pods of the attempt before stay for `kubectl logs` once they have ended with a failure.
bool KeepForLogs(const Context& c, const api::PodSnapshot& pod) {
  bool failed = pod.phase == api::PodPhase::kFailed || (pod.exit_code && *pod.exit_code != 0);
  int64_t last_failed = c.Live() && !c.Stopping() ? c.s.attempt - 1 : c.s.attempt;
  return pod.Terminal() && failed && pod.attempt >= last_failed;
}

// A kubelet says that a pod has ended a moment after its container has; what runs longer has a sidecar.
constexpr Milliseconds kPhaseFollows{30'000};

}  // namespace

void SweepOldAttempts(Context& c) {
  if (c.out.refresh_pods) return;
  for (const api::PodSnapshot* pod : c.mine) {
    bool live = c.Live() && pod->attempt == c.s.attempt;
    if (live || pod->deleting || KeepForLogs(c, *pod)) continue;
    DeleteLost(c, *pod);
  }
}

void SweepTerminal(Context& c) {
  if (c.s.phase == api::Phase::kSucceeded) c.s.reason = SuccessText(c);  // its last words may come late
  for (const api::PodSnapshot* pod : c.mine) {
    bool last = pod->attempt == c.s.attempt;
    // The last attempt's finished pods stay, for their logs and exit codes; they hold no GPU.
    if (pod->deleting || (last && pod->Terminal())) continue;
    if (last && pod->exit_code && c.s.completion_time && c.in.now < *c.s.completion_time + kPhaseFollows) {
      c.RequeueAt(*c.s.completion_time + kPhaseFollows);
      continue;
    }
    // A trainer that has succeeded beside a sidecar: the pod goes as well, it would run for ever.
    DeleteLost(c, *pod);
  }
  if (c.in.service_exists) c.Act(Action::Kind::kDeleteService, api::ServiceName(c.job));
}

}  // namespace trainyard::lifecycle
