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

// Whether what the scheduler says of a pod is of its node: "0/3 nodes are available: 1 Insufficient memory, 2 node(s)
// didn't match Pod's node affinity/selector. preemption: ...". A volume claim that is missing or unbound is no node's
// doing; a scheduler that says nothing has not looked; and a pod that does not exist was in no node's hands.
bool NodeHoldsUp(const api::PodSnapshot* pod) {
  if (pod == nullptr) return false;
  std::string said = pod->message.substr(0, pod->message.find("preemption:"));
  const std::string other_nodes = "node(s) didn't match Pod's node affinity";  // each pod is pinned to one
  for (size_t at; (at = said.find(other_nodes)) != std::string::npos;) said.erase(at, other_nodes.size());
  const auto says = [&said](const char* what) { return said.find(what) != std::string::npos; };
  return says("Insufficient ") || says("node(s) ") || says("Too many pods");
}

// The deadlines of a gang on its way up; `late` are ranks that are missing or unbound.
void WatchStart(Context& c) {
  TimePoint since = c.s.placing_since.value_or(c.in.now);
  TimePoint deadline = since + (c.s.started ? 2 * c.opt.gang_deadline : c.opt.gang_deadline);
  TimePoint hopeless = c.s.ungated_at.value_or(c.in.now) + c.opt.waiting_settle;
  std::vector<size_t> late, held_up;
  std::string detail;
  bool held = false;
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    const api::PodSnapshot* pod = c.ranks[rank];
    if (pod != nullptr && (!c.s.started || !pod->node.empty())) continue;
    if (pod != nullptr && pod->foreign_gate) held = true;
    late.push_back(rank);
    if (NodeHoldsUp(pod)) held_up.push_back(rank);
    if (pod != nullptr && detail.empty()) detail = OneLine(pod->message, 160);
    if (c.s.started && pod != nullptr && ClaimIsMissing(pod->message)) deadline = std::min(deadline, hopeless);
  }
  if (!late.empty()) {
    // What was refused holds GPUs for nothing: the claim goes back at once, and comes again later and later.
    bool refused = !c.s.started && !c.in.refused.empty();
    if (held && !refused) return;  // another controller holds the gang back, for as long as it likes
    if (c.in.now < deadline && !refused) return c.RequeueAt(deadline);
    if (!c.Fresh()) return;
    if (refused) return Undo(c, OneLine(c.in.refused, kRefusalText), {});
    std::string what = c.s.started ? " not scheduled in time" : " could not be created in time";
    return Undo(c, Plural(static_cast<int64_t>(late.size()), "pod") + what + (detail.empty() ? "" : ": " + detail),
                held_up);
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
  c.Condition(kReady, false, HasRun(c) ? kRankFailed : "RankFailedStarting", cause.message);
  TimePoint until = FindCondition(c.s, kReady)->last_transition_time + c.opt.echo_settle;
  if (c.in.now >= until) return false;
  c.settling = true;
  c.RequeueAt(until);
  return true;
}

// A node refused its pod: the gang was not placed where it was thought to be. That is nobody's failure, so no budget
// pays; but nodes that have less than their books say are avoided.
void TakeBack(Context& c, const std::vector<RankFailure>& failures, const RankFailure& cause) {
  std::vector<size_t> refused;
  for (const RankFailure& failure : failures) {
    if (failure.RefusedByNode()) refused.push_back(static_cast<size_t>(failure.rank));
  }
  std::string why = cause.message;
  if (refused.size() > 1) why += " (and " + Plural(static_cast<int64_t>(refused.size()) - 1, "more pod") + ")";
  Undo(c, why, refused);
}

}  // namespace

bool ClaimIsMissing(const std::string& message) {
  const size_t claim = message.find("persistentvolumeclaim \"");
  if (claim == std::string::npos) return false;
  return message.find("not found", claim) != std::string::npos ||
         message.find("is being deleted", claim) != std::string::npos;
}

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
  if (cause->RefusedByNode()) return TakeBack(c, failures, *cause);
  if (Settling(c, *cause)) return;
  const std::string lost = TellLostWork(c);  // a stop by someone else may have been too short as well
  EndAttempt(c, *cause, static_cast<int64_t>(failures.size()));
  if (!lost.empty()) c.s.reason += "; " + lost;
}

}  // namespace trainyard::lifecycle
