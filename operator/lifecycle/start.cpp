// The start of a gang: all pods created gated and pinned, and only when all exist the gates go, all of them. The
// Service by which its ranks meet is made again whenever it is gone.
#include <algorithm>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/steps.h"
#include "operator/placement/constraints.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

// The ranks find each other by it, also when it goes while they start.
void KeepService(Context& c) {
  if (c.in.service_exists) return;
  c.Act(Action::Kind::kCreateService, api::ServiceName(c.job), "", BuildService(c.job));
}

void CreateMissing(Context& c) {
  KeepService(c);
  for (size_t rank = 0; rank < c.ranks.size(); ++rank) {
    if (c.ranks[rank] != nullptr) continue;
    auto node_rank = static_cast<int64_t>(rank);
    c.Act(Action::Kind::kCreatePod, api::PodName(c.job, c.s.attempt, node_rank), "", BuildPod(c.job, node_rank, c.opt));
  }
  c.RequeueAt(*c.s.placing_since + c.opt.gang_deadline);
}

// Why the gang may not start on the nodes it claimed; empty: it may.
std::string Obstacle(Context& c) {
  for (const api::PlacedNode& placed : c.s.placement->nodes) {
    const placement::YardNode* node = c.Yard().Find(placed.node);
    if (node == nullptr) return "node " + placed.node + " no longer exists";
    if (!node->Eligible()) return "node " + placed.node + ": " + node->ineligible;
    const std::string barred = placement::WhyBarred(*node, c.job.spec.pod_template.nodes);
    if (!barred.empty()) return "node " + placed.node + ": " + barred;
  }
  return "";
}

// A node of the claim of which more is booked than it has; empty: none. Two operators may have claimed it at once; but
// the books may also still have pods that are gone, which passes.
std::string Overbooked(Context& c) {
  for (const api::PlacedNode& placed : c.s.placement->nodes) {
    const placement::YardNode* node = c.Yard().Find(placed.node);
    if (node == nullptr || node->used <= node->usable) continue;
    return "node " + placed.node + " is booked for " + Plural(node->used, "GPU") + " and has " +
           std::to_string(node->usable);
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
std::string WaitingFor(Context& c) {
  bool gated = false, unbound = false, containers = false;
  const api::PodSnapshot* told = nullptr;    // the first that says what it waits for
  const api::PodSnapshot* silent = nullptr;  // the first that has a node and says nothing: a dead kubelet, perhaps
  for (const api::PodSnapshot* pod : c.ranks) {
    if (pod == nullptr || Up(*pod)) continue;
    if (pod->foreign_gate) {
      gated = true;
    } else if (pod->node.empty()) {
      unbound = true;
    } else {
      containers = true;
      if (silent == nullptr && pod->reason.empty()) silent = pod;
    }
    if (told == nullptr && !pod->reason.empty()) told = pod;
  }
  std::string detail;
  auto name = [](const api::PodSnapshot& pod) { return pod.name + (pod.node.empty() ? "" : " on " + pod.node); };
  if (told != nullptr) {
    std::string why = told->reason + (told->message.empty() ? "" : ": " + told->message);
    detail = " (" + name(*told) + ": " + OneLine(why, 160) + ")";
  } else if (silent != nullptr) {
    // One after the other starts within moments, and each name that is told is a write.
    const TimePoint tell = c.s.ungated_at.value_or(c.in.now) + c.opt.naming_settle;
    if (c.in.now >= tell) {
      detail = " (" + name(*silent) + ")";
    } else {
      c.RequeueAt(tell);
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

// What a gang does whose pods all run, by what the trainer last said: that is in the status, so that the reason changes
// with it and never by itself.
std::string Doing(const Context& c, const std::string& where) {
  if (!c.job.spec.UsesBundledTrainer()) return "running on " + where;  // nothing is known of what it does
  const std::string phase = c.s.progress ? c.s.progress->trainer_phase : "";
  std::string at;
  if (phase.empty()) at = "has not reported yet";
  if (phase == contract::phase::kStarting) at = TotalGpus(*c.s.placement) > 1 ? "waits until all ranks meet" : "starts";
  if (phase == contract::phase::kRestoring) at = "reads its checkpoint";
  if (at.empty()) return "training on " + where;
  const char* pods = c.ranks.size() == 1 ? "its pod runs on " : "all pods run on ";
  return pods + where + ": the trainer " + at;
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
  c.s.undone_generation = 0;
  ForgetLostWork(c);
  std::string what = Plural(TotalGpus(*c.s.placement), "GPU") + " on " + c.s.placement->domain;
  if (c.Condition(kReady, true, "Running", attempt + " runs on " + what)) {
    c.Say("Normal", "Running", attempt + " runs on " + what);
  }
  std::string reason = Doing(c, what) + (c.note.empty() ? "" : "; " + c.note);
  if (!c.in.service_exists && !c.in.refused.empty()) {
    reason += "; its Service is gone and cannot be made again: " + OneLine(c.in.refused, kRefusalText);
  }
  c.SetPhase(api::Phase::kRunning, reason);
  c.Requeue(c.opt.progress_interval);  // progress is not watched: someone has to look
}

void AdvanceGang(Context& c) {
  if (!c.s.started) {
    if (!c.AllExist()) return CreateMissing(c);
    bool leaving = std::any_of(c.ranks.begin(), c.ranks.end(), [](const auto* p) { return p->deleting; });
    if (leaving) return c.RequeueAt(*c.s.placing_since + c.opt.gang_deadline);
    // Two operators may have claimed at once, each for another job.
    if (std::string taken = PathInUse(c); !taken.empty()) return UndoForNodes(c, taken);
    if (std::string obstacle = Obstacle(c); !obstacle.empty()) return UndoForNodes(c, obstacle);
    if (std::string overbooked = Overbooked(c); !overbooked.empty()) {
      const TimePoint sure = *c.s.placing_since + c.opt.books_settle;
      if (c.in.now >= sure) return UndoForNodes(c, overbooked);
      return c.RequeueAt(sure);
    }
    // A node that was lost when this attempt was claimed may be back, and its kubelet still stopping what runs there.
    if (!PredecessorsGone(c, c.s.attempt)) {
      c.Requeue(c.opt.placement_retry);
      return c.SetPhase(api::Phase::kPlacing, "attempt " + std::to_string(c.s.attempt) +
                                                  ": its pods exist, waiting for those of earlier attempts to be gone");
    }
    c.s.started = true;
    Ungate(c);
    const std::string all = c.ranks.size() == 1
                                ? "its pod exists, starting it"
                                : "all " + std::to_string(c.ranks.size()) + " pods exist, starting them";
    return c.SetPhase(api::Phase::kStarting, "attempt " + std::to_string(c.s.attempt) + ": " + all);
  }
  bool gated = std::any_of(c.ranks.begin(), c.ranks.end(), [](const auto* p) { return p != nullptr && p->gated; });
  if (gated && c.AllExist()) {
    if (!c.in.refused.empty()) {
      c.SetPhase(api::Phase::kStarting, "attempt " + std::to_string(c.s.attempt) +
                                            ": its pods cannot be started: " + OneLine(c.in.refused, kRefusalText));
    }
    TimePoint again = c.s.ungated_at.value_or(c.in.now - c.opt.ungate_retry) + c.opt.ungate_retry;
    if (c.in.now >= again) return Ungate(c);
    return c.RequeueAt(again);
  }
  if (c.AllExist()) ReportRunning(c);
}

}  // namespace

void Advance(Context& c) {
  if (!c.Live() || c.Stopping() || c.settling || c.out.refresh_pods) return;
  AdvanceGang(c);
  // After the gates: nothing that goes wrong with it holds them up.
  const bool made = std::any_of(c.out.actions.begin(), c.out.actions.end(),
                                [](const Action& a) { return a.kind == Action::Kind::kCreateService; });
  if (c.s.started && !c.Stopping() && !made) KeepService(c);
}

}  // namespace trainyard::lifecycle
