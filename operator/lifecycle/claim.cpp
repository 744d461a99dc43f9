// Claim first: one status write takes attempt N and its nodes before the first pod of N exists.
#include <algorithm>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/standing.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

// Sizes an elastic job tries at most per decision; each costs a plan and a placement.
constexpr int kMaxTries = 256;

std::optional<placement::GangPlacement> TryPlace(Context& c, const api::PlanStatus& plan, std::string* why_not) {
  const placement::GangRequest request = RequestOf(c.job, plan, c.opt, c.in.now);
  auto placed = placement::Place(c.Yard(), request);
  if (placed) return *placed;
  if (why_not != nullptr && why_not->empty()) *why_not = placed.error().message;
  return std::nullopt;
}

// Every pod of every earlier attempt can do no more harm.
bool PredecessorsGone(Context& c) {
  return std::all_of(c.mine.begin(), c.mine.end(), [&c](const auto* pod) { return c.Gone(*pod); });
}

}  // namespace

std::optional<Choice> Choose(Context& c, const api::PlanStatus& wanted, std::string* why_not) {
  if (auto placed = TryPlace(c, wanted, why_not)) return Choice{wanted, *placed};
  int64_t smallest = c.job.spec.gpus.min_count;
  if (smallest <= 0) return std::nullopt;
  int64_t room = 0;
  for (const placement::YardNode& node : c.Yard().nodes()) {
    if (!node.Eligible()) continue;
    auto own = node.used_by_job.find(c.job.meta.uid);
    room += own != node.used_by_job.end() ? node.free + own->second : node.free;
  }
  int tries = 0;
  for (int64_t count = std::min(wanted.gpus - 1, room); count >= smallest && tries < kMaxTries; --count, ++tries) {
    auto plan = PlanFor(c, count, nullptr);
    if (!plan) continue;
    if (auto placed = TryPlace(c, *plan, why_not)) return Choice{*plan, *placed};
  }
  return std::nullopt;
}

void Claim(Context& c) {
  if (c.Live() || c.job.spec.suspend || c.job.spec.plan_only || !c.plan || c.out.refresh_pods) return;
  if (c.s.retry_after && c.in.now < *c.s.retry_after) return c.RequeueAt(*c.s.retry_after);
  if (c.s.attempt > 0 && !c.Fresh()) return;
  if (!PredecessorsGone(c)) {
    return c.SetPhase(c.s.phase, "waiting for pods of attempt " + std::to_string(c.s.attempt) + " to be gone");
  }
  std::string why_not;
  auto choice = Choose(c, *c.plan, &why_not);
  if (!choice) {
    if (c.Condition(kPlaced, false, "NoRoom", why_not)) c.Say("Warning", "NoRoom", why_not);
    c.Requeue(c.opt.placement_retry);
    return c.SetPhase(api::Phase::kPlacing, why_not);
  }
  ++c.s.attempt;
  c.s.plan = choice->plan;
  c.s.placement.emplace();
  for (const std::string& node : choice->placement.nodes) {
    c.s.placement->nodes.push_back({node, choice->plan.per_node});
  }
  c.s.placement->domain = choice->placement.domain;
  c.s.trainer = FrozenTrainer(c.job, c.opt);
  c.s.started = false;
  c.s.stop.reset();
  c.s.retry_after.reset();
  c.s.placing_since = c.in.now;
  c.s.ungated_at.reset();
  // How far the job has come stays, and how long a step took, which the grace of the new pods hangs on; what the ended
  // attempt was doing does not.
  if (c.s.progress) {
    c.s.progress->resumed_from_step.reset();
    c.s.progress->trainer_phase.clear();
    c.s.progress->tokens_per_second.reset();
  }
  std::string what = "attempt " + std::to_string(c.s.attempt) + ": " + choice->placement.why;
  if (choice->plan.gpus < c.plan->gpus) what += " (wanted " + std::to_string(c.plan->gpus) + ": " + why_not + ")";
  c.Condition(kPlaced, true, "Placed", what);
  c.Condition(kReady, false, "Starting", "attempt " + std::to_string(c.s.attempt) + " is starting");
  c.SetPhase(api::Phase::kStarting, what + LostWork(c, c.s.attempt - 1));
  c.Say("Normal", "Placed", what);
  c.RankPods();
}

}  // namespace trainyard::lifecycle
