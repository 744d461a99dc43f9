// Claim first: one status write takes attempt N and its nodes before the first pod of N exists.
#include <algorithm>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/penalties.h"
#include "operator/lifecycle/resolved_job.h"
#include "operator/lifecycle/standing.h"
#include "operator/lifecycle/steps.h"
#include "operator/placement/fabric.h"

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

// Where the gang goes, in rank order, and what the network between its nodes makes of its pods: frozen here, so that
// every pod of the attempt gets the same.
api::PlacementStatus Placed(Context& c, const Choice& choice) {
  api::PlacementStatus placed;
  placed.domain = choice.placement.domain;
  for (const std::string& name : choice.placement.nodes) {
    placed.nodes.push_back({name, choice.plan.per_node});
    const placement::YardNode* node = c.Yard().Find(name);
    std::string path;
    for (size_t level = 0; node != nullptr && level < node->path.size(); ++level) {
      path += (level > 0 ? "/" : "") + node->path[level];
    }
    if (placed.domains.empty() || placed.domains.back().path != path) placed.domains.push_back({path, 0});
    ++placed.domains.back().nodes;
  }
  const bool none = std::all_of(placed.domains.begin(), placed.domains.end(),
                                [](const api::PlacedDomain& domain) { return domain.path.empty(); });
  if (none) placed.domains.clear();
  auto device = ResolveDevice(c.job.spec.training.device, choice.plan.product);
  if (!device || *device != api::DeviceKind::kCuda) return placed;
  const placement::Fabric fabric = placement::FabricOf(c.Yard(), choice.placement.nodes);
  placed.fabric = fabric.profile;
  placed.environment = fabric.environment;
  return placed;
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
  c.s.placement = Placed(c, *choice);
  c.s.trainer = FrozenTrainer(c.job, c.opt);
  c.s.started = false;
  c.s.stop.reset();
  c.s.retry_after.reset();
  ForgetOldPenalties(c.s, c.in.now, c.opt.penalty_period);
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
