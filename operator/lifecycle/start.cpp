// The start of a gang: all pods created gated and pinned, and only when all exist the gates go, all of them.
#include <algorithm>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

void CreateMissing(Context& c) {
  if (!c.in.service_exists) {
    c.Act(Action::Kind::kCreateService, api::ServiceName(c.job), "", BuildService(c.job));
  }
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    if (c.ranks[rank] != nullptr) continue;
    auto node_rank = static_cast<int64_t>(rank);
    c.Act(Action::Kind::kCreatePod, api::PodName(c.job, c.s.attempt, node_rank), "", BuildPod(c.job, node_rank, c.opt));
  }
  c.RequeueAt(*c.s.placing_since + c.opt.gang_deadline);
  if (c.in.refused.empty()) return;
  std::string what =
      "attempt " + std::to_string(c.s.attempt) + ": the API server refuses its pods: " + OneLine(c.in.refused);
  if (c.s.reason != what) c.Say("Warning", "Refused", what);
  c.SetPhase(api::Phase::kStarting, what);
}

// Why the gang may not start on the nodes it claimed; empty: it may. Claims of two operators at once (one of them
// deposed) can overlap: both see it here before either runs.
std::string Obstacle(Context& c) {
  for (const api::PlacedNode& placed : c.s.placement->nodes) {
    const placement::YardNode* node = c.Yard().Find(placed.node);
    if (node == nullptr) return "node " + placed.node + " no longer exists";
    if (!node->Eligible()) return "node " + placed.node + ": " + node->ineligible;
    if (node->used > node->usable) {
      return "node " + placed.node + " is booked for " + Plural(node->used, "GPU") + " and has " +
             std::to_string(node->usable);
    }
  }
  return "";
}

void Ungate(Context& c) {
  // The new value makes this a real write, so that nobody with an older copy of the job can take gates off.
  c.s.ungated_at = c.in.now;
  for (const api::PodSnapshot* pod : c.ranks) {
    if (pod->gated && !pod->deleting) c.Act(Action::Kind::kUngatePod, pod->name, pod->uid);
  }
  c.Requeue(c.opt.ungate_retry);
}

bool Up(const api::PodSnapshot& pod) { return pod.phase == api::PodPhase::kRunning || pod.exit_code == 0; }

// What the pods that are not up yet are waiting for, in one line. It changes with what they wait for and not with how
// many do: each change is a write.
std::string WaitingFor(const Context& c) {
  bool gated = false, unbound = false, containers = false;
  std::string detail;
  for (const api::PodSnapshot* pod : c.ranks) {
    if (pod == nullptr || Up(*pod)) continue;
    if (pod->foreign_gate) {
      gated = true;
    } else if (pod->node.empty()) {
      unbound = true;
    } else {
      containers = true;
    }
    if (detail.empty() && !pod->reason.empty()) {
      detail =
          " (" + pod->name + ": " + OneLine(pod->reason + (pod->message.empty() ? "" : ": " + pod->message), 160) + ")";
    }
  }
  std::string text;
  auto add = [&text](bool some, const char* what) {
    if (some) text += std::string(text.empty() ? "" : ", ") + what;
  };
  add(gated, "another controller's scheduling gate to go");
  add(unbound, "pods to be scheduled");
  add(containers, "pods to start");
  return text + detail;
}

void ReportRunning(Context& c) {
  std::string attempt = "attempt " + std::to_string(c.s.attempt);
  if (!std::all_of(c.ranks.begin(), c.ranks.end(), [](const auto* pod) { return pod != nullptr && Up(*pod); })) {
    c.Condition(kReady, false, "Starting", attempt + " is starting");
    const TimePoint tell = c.s.ungated_at.value_or(c.in.now) + c.opt.waiting_settle;
    if (c.s.phase == api::Phase::kStarting && c.in.now < tell) return c.RequeueAt(tell);
    return c.SetPhase(api::Phase::kStarting, attempt + ": waiting for " + WaitingFor(c));
  }
  if (!c.s.start_time) c.s.start_time = c.in.now;
  std::string what = Plural(TotalGpus(*c.s.placement), "GPU") + " on " + c.s.placement->domain;
  if (c.Condition(kReady, true, "Running", attempt + " runs on " + what)) {
    c.Say("Normal", "Running", attempt + " runs on " + what);
  }
  c.SetPhase(api::Phase::kRunning, "training on " + what + (c.note.empty() ? "" : "; " + c.note));
  c.Requeue(c.opt.progress_interval);  // progress is not watched: someone has to look
}

}  // namespace

void Advance(Context& c) {
  if (!c.Live() || c.Stopping() || c.settling || c.out.refresh_pods) return;
  if (!c.s.started) {
    if (!c.AllExist()) return CreateMissing(c);
    bool leaving = std::any_of(c.ranks.begin(), c.ranks.end(), [](const auto* p) { return p->deleting; });
    if (leaving) return c.RequeueAt(*c.s.placing_since + c.opt.gang_deadline);
    if (std::string obstacle = Obstacle(c); !obstacle.empty()) return Undo(c, obstacle, {});
    c.s.started = true;
    Ungate(c);
    return c.SetPhase(api::Phase::kStarting, "attempt " + std::to_string(c.s.attempt) + ": all " +
                                                 Plural(static_cast<int64_t>(c.ranks.size()), "pod") +
                                                 " exist, starting them");
  }
  bool gated = std::any_of(c.ranks.begin(), c.ranks.end(), [](const auto* p) { return p != nullptr && p->gated; });
  if (gated && c.AllExist()) {
    TimePoint again = c.s.ungated_at.value_or(c.in.now - c.opt.ungate_retry) + c.opt.ungate_retry;
    if (c.in.now >= again) return Ungate(c);
    return c.RequeueAt(again);
  }
  if (c.AllExist()) ReportRunning(c);
}

}  // namespace trainyard::lifecycle
