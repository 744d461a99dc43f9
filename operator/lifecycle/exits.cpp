// How an attempt ends by itself: every rank succeeded, one failed, or the gang did not come up in time.
#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/failure.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

// Success is read from the container `trainer`: a sidecar may keep the pod running.
bool Succeeded(const api::PodSnapshot* pod) {
  if (pod == nullptr) return false;
  return pod->exit_code ? *pod->exit_code == 0 : pod->phase == api::PodPhase::kSucceeded;
}

bool Ended(const api::PodSnapshot* pod) { return pod == nullptr || pod->exit_code.has_value() || pod->Terminal(); }

void Succeed(Context& c) {
  c.s.completion_time = c.in.now;
  c.s.stop.reset();
  c.Condition(kReady, false, "Finished", "all ranks have exited");
  c.Condition(
      kComplete, true, "Succeeded",
      c.ranks.size() == 1 ? "its pod exited with 0" : "all " + std::to_string(c.ranks.size()) + " pods exited with 0");
  c.SetPhase(api::Phase::kSucceeded, SuccessText(c));
  c.Say("Normal", "Succeeded", c.s.reason);
}

bool BadImage(const std::string& reason) {
  return reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "InvalidImageName" ||
         reason == "ErrImageNeverPull" || reason == "CreateContainerConfigError" || reason == "CreateContainerError" ||
         reason == "RunContainerError";
}

// The deadlines of a gang on its way up; `late` are ranks that are missing or unbound.
void WatchStart(Context& c) {
  TimePoint since = c.s.placing_since.value_or(c.in.now);
  TimePoint deadline = since + (c.s.started ? 2 * c.opt.gang_deadline : c.opt.gang_deadline);
  std::vector<size_t> late;
  std::string detail;
  bool held = false;
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    const api::PodSnapshot* pod = c.ranks[rank];
    if (pod != nullptr && (!c.s.started || !pod->node.empty())) continue;
    if (pod != nullptr && pod->foreign_gate) held = true;
    late.push_back(rank);
    if (pod != nullptr && detail.empty()) detail = OneLine(pod->message, 160);
  }
  if (!late.empty()) {
    if (held) return;  // another controller holds the gang back, for as long as it likes
    if (c.in.now < deadline) return c.RequeueAt(deadline);
    if (!c.Fresh()) return;
    std::string what = c.s.started ? " not scheduled in time" : " could not be created in time";
    if (!c.s.started && !c.in.refused.empty()) detail = OneLine(c.in.refused);
    return Undo(c, Plural(static_cast<int64_t>(late.size()), "pod") + what + (detail.empty() ? "" : ": " + detail),
                late);
  }
  if (!c.s.started) return;
  deadline = since + c.opt.startup_deadline;
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    const api::PodSnapshot& pod = *c.ranks[rank];
    if (pod.phase != api::PodPhase::kPending) continue;
    if (c.in.now < deadline) return c.RequeueAt(deadline);
    std::string text = OneLine(pod.reason + (pod.message.empty() ? "" : ": " + pod.message));
    if (text.empty()) text = "its node's kubelet says nothing of it";
    return EndAttempt(
        c,
        MakeFailure(static_cast<int64_t>(rank), pod.node, BadImage(pod.reason) ? "BadImage" : "StartTimeout",
                    "node rank " + std::to_string(rank) + " on " + pod.node + " did not start: " + text),
        1);
  }
}

// A rank that only lost its peers waits a moment for the failure that it echoes. The moment begins with a status
// write, which Ready=False is needed for anyway.
bool Settling(Context& c, const RankFailure& cause) {
  bool all_ended = std::all_of(c.ranks.begin(), c.ranks.end(), Ended);
  if (!cause.IsEcho() || all_ended) return false;
  Forgive(c);  // while Ready still says since when it ran well
  c.Condition(kReady, false, "RankFailed", cause.message);
  TimePoint until = FindCondition(c.s, kReady)->last_transition_time + c.opt.echo_settle;
  if (c.in.now >= until) return false;
  c.settling = true;
  c.RequeueAt(until);
  return true;
}

}  // namespace

std::string SuccessText(const Context& c) {
  if (!c.s.progress || c.s.progress->steps <= 0) return "finished";
  return "finished: step " + std::to_string(c.s.progress->step) + " of " + std::to_string(c.s.progress->steps);
}

void ObserveExits(Context& c) {
  if (!c.Live()) return;
  // All ranks done means done, even when a stop was on its way.
  if (!c.ranks.empty() && std::all_of(c.ranks.begin(), c.ranks.end(), Succeeded)) return Succeed(c);
  if (c.Stopping()) return;  // the stop check
  if (!c.s.started) return WatchStart(c);
  std::vector<RankFailure> failures;
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    // A cache that lags behind the job shows no pod where there is one: ask before believing it.
    if (c.ranks[rank] == nullptr && !c.Fresh()) return;
    if (auto failure = FailureOf(c, static_cast<int64_t>(rank), c.ranks[rank])) failures.push_back(*failure);
  }
  if (failures.empty()) return WatchStart(c);
  auto cause = std::max_element(failures.begin(), failures.end(),
                                [](const auto& a, const auto& b) { return a.severity < b.severity; });
  if (Settling(c, *cause)) return;
  const std::string lost = TellLostWork(c);  // a stop by someone else may have been too short as well
  EndAttempt(c, *cause, static_cast<int64_t>(failures.size()));
  if (!lost.empty()) c.s.reason += "; " + lost;
}

}  // namespace trainyard::lifecycle
