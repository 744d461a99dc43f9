// The plan of this generation: validated, made once, then frozen, so that a change of the cluster or of the operator
// never changes a job that is under way.
#include <algorithm>

#include "operator/api/validation.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/resolved_job.h"
#include "operator/lifecycle/steps.h"
#include "operator/placement/why_not.h"
#include "operator/sizing/plan.h"

namespace trainyard::lifecycle {
namespace {

constexpr int64_t kFirstErrors = 5;

// All errors in one line; a few are enough to act on.
std::string Join(const std::vector<std::string>& errors) {
  std::string text;
  for (size_t i = 0; i < errors.size() && i < kFirstErrors; ++i) text += (i > 0 ? "; " : "") + errors[i];
  if (errors.size() > kFirstErrors) text += "; and " + std::to_string(errors.size() - kFirstErrors) + " more";
  return text;
}

std::string Summary(const api::PlanStatus& plan) {
  return plan.strategy + " on " + std::to_string(plan.gpus) + " " + plan.product + (plan.gpus == 1 ? " GPU" : " GPUs") +
         ", " + std::to_string(plan.per_node) + " per node, micro batch " + std::to_string(plan.micro_batch_size) +
         " x " + std::to_string(plan.accumulation);
}

void Refuse(Context& c, const std::string& reason, const std::string& message) {
  c.plan_problem = message;
  if (c.Condition(kPlanned, false, reason, message)) c.Say("Warning", reason, message);
  // Who has the directory wakes those that wait for it.
  if (reason != kCheckpointPathInUse) c.Requeue(c.opt.placement_retry);
  if (c.Live()) return;  // what runs goes on with the plan that it has
  c.s.plan.reset();
  if (c.job.spec.suspend) return;
  // Some messages name their reason themselves.
  c.SetPhase(api::Phase::kPending, message.starts_with(reason + ": ") ? message : reason + ": " + message);
}

// Whether any of it is of a product that the job allows.
bool Offers(const std::vector<sizing::ProductSupply>& supply, const std::vector<std::string>& products,
            const sizing::Catalogue& catalogue) {
  return std::any_of(supply.begin(), supply.end(), [&](const sizing::ProductSupply& offered) {
    return products.empty() || std::any_of(products.begin(), products.end(), [&](const std::string& name) {
             const sizing::GpuProduct* product = catalogue.Find(name);
             return product != nullptr && product->name == offered.product;
           });
  });
}

Result<api::PlanStatus> Plan(Context& c, const api::TrainingJob& job) {
  const std::shared_ptr<const sizing::Catalogue>& catalogue = c.opt.yard.catalogue;
  const std::vector<std::string>& products = job.spec.gpus.products;
  api::NodeConstraints constraints = c.job.spec.pod_template.nodes;
  std::vector<sizing::ProductSupply> supply = c.Yard().Supply(constraints);
  if (!Offers(supply, products, sizing::OrDefault(catalogue))) {
    // No node fulfils the template: that is what placement says, node by node. A plan for the others is as good as any.
    constraints.node_selector.clear();
    constraints.affinity.clear();
    supply = c.Yard().Supply(constraints);
  }
  if (!Offers(supply, products, sizing::OrDefault(catalogue))) {
    // Nodes that take nobody for now are not nodes that are not there.
    const std::string why = placement::WhyNoneTakes(c.Yard(), products, constraints.tolerations);
    if (!why.empty()) return Fail(ErrorCode::kResourceExhausted, why);
  }
  auto ask = [&](const api::TrainingJob& asked) {
    if (c.in.planner != nullptr) return c.in.planner->Plan(asked, supply, catalogue);
    return sizing::PlanJob(asked, supply, catalogue);
  };
  auto plan = ask(job);
  if (plan || !job.status.measured) return plan;
  // Measurements make estimates better; they must not refuse what would be tried without them.
  api::TrainingJob unmeasured = job;
  unmeasured.status.measured.reset();
  return ask(unmeasured);
}

// True if a run measured what the plan does not contain yet. A running attempt keeps its plan.
bool Measured(const Context& c) {
  return !c.Live() && c.s.measured && c.s.plan && c.s.plan->corrections != *c.s.measured;
}

const char* ReasonOf(const Error& error) {
  if (error.code != ErrorCode::kResourceExhausted) return "Impossible";
  return error.message.starts_with("OverBudget: ") ? "OverBudget" : "DoesNotFit";
}

}  // namespace

std::optional<api::PlanStatus> PlanFor(Context& c, int64_t count, std::string* problem) {
  api::TrainingJob job = c.job;
  if (count > 0) job.spec.gpus.count = count;
  auto plan = Plan(c, job);
  if (!plan) {
    if (problem != nullptr) *problem = plan.error().message;
    return std::nullopt;
  }
  plan->generation = c.job.meta.generation;
  return *plan;
}

void JudgePlan(Context& c) {
  std::vector<std::string> errors = api::Validate(c.job);
  if (!errors.empty()) return Refuse(c, "Invalid", Join(errors));
  // What runs keeps running when its class is removed, as pods do.
  if (const auto priority = c.NamedPriority(); !priority && !c.Live()) {
    return Refuse(c, "Invalid", priority.error().message);
  }
  if (!c.Live()) {
    if (const std::string taken = PathInUse(c); !taken.empty()) return Refuse(c, kCheckpointPathInUse, taken);
  }
  bool elastic = c.job.spec.gpus.min_count > 0;
  if (c.s.plan && c.s.plan->generation == c.job.meta.generation && (!elastic || c.Live()) && !Measured(c)) {
    c.plan = c.s.plan;
  } else {
    auto plan = Plan(c, c.job);
    if (!plan) return Refuse(c, ReasonOf(plan.error()), plan.error().message);
    c.plan = *plan;
    c.plan->generation = c.job.meta.generation;
  }
  if (auto device = ResolveDevice(c.job.spec.training.device, c.plan->product); !device) {
    c.plan.reset();
    return Refuse(c, "Impossible", device.error().message);
  }
  if (!c.Live()) c.s.plan = c.plan;
  std::string summary = Summary(*c.plan);
  if (c.Condition(kPlanned, true, "Planned", c.plan->why.empty() ? summary : summary + ": " + c.plan->why)) {
    c.Say("Normal", "Planned", summary);
  }
  if (c.job.spec.plan_only && !c.Live()) {
    c.SetPhase(api::Phase::kPending, "planned: " + summary + "; spec.planOnly is set, so nothing is started");
  }
}

}  // namespace trainyard::lifecycle
