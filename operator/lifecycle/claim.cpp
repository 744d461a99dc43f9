// Claim first: one status write takes attempt N and its nodes before the first pod of N exists. Whose turn it is, and
// what those ahead keep, is the line's to say (placement/line.h).
#include <algorithm>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/penalties.h"
#include "operator/lifecycle/pod_template.h"
#include "operator/lifecycle/resolved_job.h"
#include "operator/lifecycle/standing.h"
#include "operator/lifecycle/steps.h"
#include "operator/placement/fabric.h"

namespace trainyard::lifecycle {
namespace {

// Sizes an elastic job tries at most per decision; each costs a plan and a placement.
constexpr int kMaxTries = 256;

// What `plan` asks for beside what the line keeps for others. A job that is in no line has no time by which it would
// have given back what is reserved for later.
placement::GangRequest Beside(const Context& c, const api::PlanStatus& plan, const placement::Line& line) {
  placement::GangRequest request = RequestOf(c.job, plan, c.opt, c.in.now);
  const bool waits = line.Find(c.job.meta.uid) != nullptr;
  request.held = line.HeldFor(c.job.meta.uid, waits ? TimeLeft(c.job, plan) : std::nullopt);
  return request;
}

// This decision gives back what a more important job waits for. Until that is written the books still have it as the
// job's own, and it would take it back at once.
bool MadeRoom(const Context& c) {
  const auto& stop = c.in.job.status.stop;
  return c.in.job.status.placement && stop && stop->attempt == c.s.attempt && stop->reason == kStopPreempted;
}

// What the network between the nodes makes of the gang's pods. Devices of the network only go to pods that have all
// GPUs of their nodes: others share them with neighbours.
void SetFabric(Context& c, const Choice& choice, api::PlacementStatus& placed) {
  auto device = ResolveDevice(c.job.spec.training.device, choice.plan.product);
  if (!device || *device != api::DeviceKind::kCuda) return;
  placement::Fabric fabric = placement::FabricOf(c.Yard(), choice.placement.nodes);
  placed.fabric = fabric.profile;
  placed.environment = std::move(fabric.environment);
  // Profiles name the interface that pods have by their own network.
  if (UsesHostNetwork(c.job.spec.pod_template)) placed.environment.erase("NCCL_SOCKET_IFNAME");
  const bool whole = std::all_of(placed.nodes.begin(), placed.nodes.end(), [&c](const api::PlacedNode& node) {
    const placement::YardNode* seen = c.Yard().Find(node.node);
    return seen != nullptr && seen->usable == node.gpus;
  });
  if (!whole) return;
  for (const auto& [resource, amount] : fabric.resources) {
    if (!AsksFor(c.job.spec.pod_template, resource)) placed.resources[resource] = amount;
  }
}

// "; fabric EFA, each pod asks for 32 vpc.amazonaws.com/efa"
std::string FabricText(const api::PlacementStatus& placed) {
  if (placed.fabric.empty()) return "";
  std::string text = "; fabric " + placed.fabric;
  for (const auto& [resource, amount] : placed.resources) {
    text += (text.find("asks for") == std::string::npos ? ", each pod asks for " : " and ") + std::to_string(amount) +
            " " + resource;
  }
  return text;
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
  SetFabric(c, choice, placed);
  return placed;
}

}  // namespace

std::optional<Choice> Choose(Context& c, const api::PlanStatus& wanted, const placement::Line& line) {
  const auto choose = [&](const api::PlanStatus& plan) -> std::optional<Choice> {
    auto placed = placement::FindPlace(c.Yard(), Beside(c, plan, line));
    if (!placed) return std::nullopt;
    return Choice{plan, *std::move(placed)};
  };
  if (auto choice = choose(wanted)) return choice;
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
    if (auto choice = choose(*plan)) return choice;
  }
  return std::nullopt;
}

std::string WhyNot(Context& c, const api::PlanStatus& plan, const placement::Line& line) {
  const auto placed = placement::Place(c.Yard(), Beside(c, plan, line));
  return placed ? "" : placed.error().message;
}

bool PredecessorsGone(Context& c, int64_t attempt) {
  return std::all_of(c.mine.begin(), c.mine.end(),
                     [&](const api::PodSnapshot* pod) { return pod->attempt >= attempt || c.Gone(*pod); });
}

bool WouldEverFit(Context& c, const api::PlanStatus& plan) {
  placement::GangRequest request = RequestOf(c.job, plan, c.opt, c.in.now);
  for (const placement::YardNode& node : c.Yard().nodes()) {
    for (const auto& [job, gpus] : node.used_by_job) request.released.insert(job);
  }
  return placement::FindPlace(c.Yard(), request).has_value();
}

namespace {

// The largest size of an elastic job that would fit if every job ended, where the wanted one would not: at that it
// stands in the line, else it would keep nothing and nobody would stop for it.
std::optional<api::PlanStatus> LargestPossible(Context& c) {
  int tries = 0;
  for (int64_t count = c.plan->gpus - 1; count >= c.job.spec.gpus.min_count && tries < kMaxTries; --count, ++tries) {
    auto plan = PlanFor(c, count, nullptr);
    if (plan && WouldEverFit(c, *plan)) return plan;
  }
  return std::nullopt;
}

}  // namespace

void Claim(Context& c) {
  if (c.Live() || c.job.spec.suspend || c.job.spec.plan_only || !c.plan || c.out.refresh_pods) return;
  if (c.s.retry_after && c.in.now < *c.s.retry_after) return c.RequeueAt(*c.s.retry_after);
  if (MadeRoom(c)) return c.Requeue(Milliseconds(1));
  c.s.plan = c.plan;
  auto asking = WaitingOf(c.job, c.opt, c.Priority());
  if (!asking) return;
  const placement::Line* asked = &c.Line(&*asking);
  const placement::LineEntry* turn = asked->Find(asking->uid);
  if (turn != nullptr && turn->never && asking->elastic) {
    if (auto less = LargestPossible(c)) {
      c.s.plan = c.plan = less;
      asking = WaitingOf(c.job, c.opt, c.Priority());
      asked = &c.Line(&*asking);
      turn = asked->Find(asking->uid);
    }
  }
  const placement::Line& line = *asked;
  if (turn == nullptr) return c.Requeue(c.opt.placement_retry);
  std::optional<Choice> choice;
  if (turn->fits) {
    choice = Choice{*c.plan, *turn->placement};
  } else if (turn->untried || (asking->elastic && !turn->making_room)) {
    // For whom others stop, it does not take a part of what they give: they would have stopped for nothing.
    choice = Choose(c, *c.plan, line);
  }
  if (!choice) return Wait(c, line, *turn);
  // Only now, since a list costs a call: one that waits for room looks often.
  if (c.s.attempt > 0 && !c.Fresh()) return;
  if (!PredecessorsGone(c, c.s.attempt + 1)) {
    return c.SetPhase(c.s.phase, "waiting for pods of attempt " + std::to_string(c.s.attempt) + " to be gone");
  }
  std::string less;
  if (choice->plan.gpus < c.plan->gpus) {
    less = " (wanted " + std::to_string(c.plan->gpus) + ": " + WhyNot(c, *c.plan, line) + ")";
  }
  ++c.s.attempt;
  c.s.plan = choice->plan;
  c.s.placement = Placed(c, *choice);
  c.s.trainer = FrozenTrainer(c.job, c.opt);
  FreezeFailureEstimate(c);
  ClaimsSize(c);
  c.s.started = false;
  c.s.stop.reset();
  c.s.retry_after.reset();
  ForgetOldPenalties(c.s, c.in.now, c.opt.penalty_period);
  c.s.told_at.reset();
  c.s.placing_since = c.in.now;
  c.s.ungated_at.reset();
  // How far the job has come stays, and how long a step took, which the grace of the new pods hangs on; what the ended
  // attempt was doing does not.
  if (c.s.progress) {
    c.s.progress->resumed_from_step.reset();
    c.s.progress->trainer_phase.clear();
    c.s.progress->tokens_per_second.reset();
    c.s.progress->state_hash.clear();
    c.s.progress->loaded_state_hash.clear();
  }
  const std::string what =
      "attempt " + std::to_string(c.s.attempt) + ": " + choice->placement.why + FabricText(*c.s.placement) + less;
  c.Condition(kPlaced, true, "Placed", what);
  c.Condition(kReady, false, "Starting", "attempt " + std::to_string(c.s.attempt) + " is starting");
  c.SetPhase(api::Phase::kPlacing, what + LostWork(c, c.s.attempt - 1));
  c.Say("Normal", "Placed", what);
  c.RankPods();
}

}  // namespace trainyard::lifecycle
