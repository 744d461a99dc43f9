// Another size: found a place first, with the job's own GPUs counted free; until there is one, training goes on.
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

bool SameShape(const api::PlacementStatus& placement, const api::PlanStatus& plan) {
  return TotalGpus(placement) == plan.gpus && placement.nodes[0].gpus == plan.per_node;
}

// What an elastic job that runs smaller than it wants would grow to; only after it ran well for a while, so that it
// does not restart for every GPU that comes and goes.
std::optional<api::PlanStatus> GrowBack(Context& c) {
  if (c.job.spec.gpus.min_count <= 0) return std::nullopt;
  const api::Condition* ready = FindCondition(c.s, kReady);
  if (ready == nullptr || ready->status != "True") return std::nullopt;
  TimePoint due = ready->last_transition_time + c.opt.grow_after;
  if (c.in.now < due) {
    c.RequeueAt(due);
    return std::nullopt;
  }
  auto wanted = PlanFor(c, 0, nullptr);
  if (!wanted || wanted->gpus <= TotalGpus(*c.s.placement)) return std::nullopt;
  return wanted;
}

// "resize from 2 to 4 GPUs"; where the number stays, what else changes.
std::string ResizeText(const api::PlacementStatus& from, const api::PlanStatus& to) {
  int64_t running = TotalGpus(from);
  if (running != to.gpus) return "resize from " + std::to_string(running) + " to " + Plural(to.gpus, "GPU");
  auto spread = [](int64_t gpus, int64_t nodes) { return Plural(gpus, "GPU") + " on " + Plural(nodes, "node"); };
  return "resize from " + spread(running, static_cast<int64_t>(from.nodes.size())) + " to " +
         spread(to.gpus, to.gpus / to.per_node);
}

}  // namespace

void StopForResize(Context& c) {
  if (!c.Live() || c.Stopping() || c.settling || c.out.refresh_pods || c.job.spec.suspend) return;
  if (!c.plan) {
    c.note = "the new spec cannot be followed: " + c.plan_problem;
    return;
  }
  int64_t running = TotalGpus(*c.s.placement);
  bool asked = c.s.plan && c.s.plan->generation != c.job.meta.generation;
  std::optional<api::PlanStatus> wanted;
  if (!asked) {
    wanted = GrowBack(c);
    if (!wanted) return WantNoSize(c);
  } else if (SameShape(*c.s.placement, *c.plan)) {
    WantNoSize(c);
    if (const auto* placed = FindCondition(c.s, kPlaced); placed != nullptr && placed->reason == "ResizeWaits") {
      c.Condition(kPlaced, true, "Placed", "attempt " + std::to_string(c.s.attempt) + " has the size that is wanted");
    }
    // The next attempt takes what else has changed; the product stays, since the nodes do.
    if (c.plan->product == c.s.plan->product) {
      c.s.plan = c.plan;
    } else {
      c.s.plan->generation = c.job.meta.generation;
    }
    return;
  } else {
    wanted = c.plan;
  }
  WantSize(c, wanted->gpus, asked ? "the spec has changed" : "an elastic job grows back");
  // It stands in no line: it takes what those who do leave.
  const placement::Line& line = c.Line();
  auto choice = Choose(c, *wanted, line);
  bool grows_nothing = choice && wanted->gpus > running && choice->plan.gpus <= running;
  if (!choice || grows_nothing) {
    c.note = "wants " + Plural(wanted->gpus, "GPU") + ": " + WhyNot(c, *wanted, line);
    if (c.Condition(kPlaced, true, "ResizeWaits", c.note)) c.Say("Warning", "ResizeWaits", c.note);
    return c.Requeue(c.opt.placement_retry);
  }
  // The new plan is the job's from here on; Claim places it again once the pods are gone.
  c.s.plan = choice->plan;
  c.plan = choice->plan;
  c.SetPhase(api::Phase::kResizing, "");
  StopsForSize(c);
  c.s.resize->to = choice->plan.gpus;
  Stop(c, kStopResize, ResizeText(*c.s.placement, choice->plan));
}

}  // namespace trainyard::lifecycle
