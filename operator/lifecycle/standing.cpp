#include "operator/lifecycle/standing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "operator/api/names.h"
#include "operator/lifecycle/context.h"
#include "operator/lifecycle/penalties.h"
#include "operator/lifecycle/pod_builder.h"

namespace trainyard::lifecycle {
namespace {

// Whether others may have its GPUs when it has stopped: it does not come back for them, or backs off first.
bool LeavesForOthers(const api::StopStatus& stop) { return stop.reason != kStopResize; }

std::optional<Milliseconds> FromSeconds(double seconds) {
  constexpr double kLongest = 10 * 365 * 86400.0;  // nobody waits by longer estimates
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kLongest) return std::nullopt;
  return Milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

api::TrainerStatus FrozenTrainer(const api::TrainingJob& job, const Options& options) {
  if (job.status.trainer && job.status.trainer->generation == job.meta.generation) return *job.status.trainer;
  return NewTrainer(job, options);
}

placement::GangRequest RequestOf(const api::TrainingJob& job, const api::PlanStatus& plan, const Options& options,
                                 TimePoint now) {
  placement::GangRequest request;
  if (job.status.attempt > 0) request.job_uid = job.meta.uid;  // else nothing of it can be anywhere
  request.gpus = plan.gpus;
  request.per_node = plan.per_node;
  request.products = {plan.product};
  request.nvlink = job.spec.gpus.nvlink;
  request.level = job.spec.gpus.topology.level;
  request.level_required = job.spec.gpus.topology.mode == api::TopologyMode::kRequired;
  request.constraints = job.spec.pod_template.nodes;
  request.excluded_nodes = ActivePenalties(job.status, now, options.penalty_period);
  request.pod_resources = PodResources(plan.per_node, job, plan, FrozenTrainer(job, options));
  return request;
}

std::optional<Milliseconds> TimeLeft(const api::TrainingJob& job, const api::PlanStatus& plan) {
  double left = 1;
  if (const auto& progress = job.status.progress; progress && progress->steps > 0) {
    const double steps = static_cast<double>(progress->steps);
    left = std::clamp(1 - static_cast<double>(progress->step) / steps, 0.0, 1.0);
    // As measured, if it was measured on as many GPUs.
    if (progress->step_seconds && progress->step_gpus.value_or(plan.gpus) == plan.gpus) {
      return FromSeconds(left * steps * *progress->step_seconds);
    }
  }
  return plan.hours ? FromSeconds(left * *plan.hours * 3600) : std::nullopt;
}

std::optional<placement::WaitingGang> WaitingOf(const api::TrainingJob& job, const Options& options,
                                                const api::PriorityClass& priority) {
  const api::JobStatus& s = job.status;
  const bool out = !job.spec.IsOurs() || api::IsTerminal(s.phase) || job.meta.deletion_time || job.spec.suspend ||
                   job.spec.plan_only || s.placement;
  if (out || !s.plan || s.plan->gpus <= 0 || s.plan->per_node <= 0) return std::nullopt;
  placement::WaitingGang gang;
  gang.uid = job.meta.uid;
  gang.name = job.meta.ns + "/" + job.meta.name;
  gang.priority = priority.value;
  // What it stopped others for did not come up: it shall not stop them again for the same.
  gang.failed_start = s.undone_generation == job.meta.generation;
  gang.may_preempt = priority.preempts && !gang.failed_start;
  gang.elastic = job.spec.gpus.min_count > 0;
  gang.since = job.meta.creation_time.value_or(TimePoint());
  gang.not_before = s.retry_after.value_or(TimePoint());
  gang.estimate = TimeLeft(job, *s.plan);
  gang.request = RequestOf(job, *s.plan, options, gang.not_before);
  return gang;
}

std::optional<placement::RunningGang> RunningOf(const api::TrainingJob& job,
                                                const Result<api::PriorityClass>& priority) {
  const api::JobStatus& s = job.status;
  placement::RunningGang gang;
  gang.holds = ClaimsOf(job);
  if (gang.holds.empty()) return std::nullopt;
  gang.uid = job.meta.uid;
  gang.name = job.meta.ns + "/" + job.meta.name;
  gang.priority = PriorityOr(priority).value;
  gang.placed_at = s.placing_since.value_or(TimePoint());
  gang.saved_at = gang.placed_at;
  if (s.checkpoint) {
    if (const auto saved = ParseTime(s.checkpoint->time)) gang.saved_at = std::max(gang.saved_at, *saved);
  }
  const std::optional<Milliseconds> left = s.plan ? TimeLeft(job, *s.plan) : std::nullopt;
  if (left) gang.expected_end = std::max(s.progress_time.value_or(gang.placed_at), gang.placed_at) + *left;
  gang.stopping = s.stop && s.stop->attempt == s.attempt && LeavesForOthers(*s.stop);
  if (gang.stopping) gang.expected_end = s.stop->due;
  // One that stops to be resized comes back for its GPUs, and is told then.
  gang.preemptible =
      priority && job.spec.IsOurs() && !job.meta.deletion_time && (!s.stop || s.stop->attempt != s.attempt);
  return gang;
}

api::PriorityClass PriorityOr(const Result<api::PriorityClass>& found) { return found ? *found : api::PriorityClass(); }

Result<api::PriorityClass> FindPriority(const std::vector<api::PriorityClass>& known, const std::string& name) {
  // Of several defaults the least important counts, as the API server has it for pods.
  const api::PriorityClass* found = nullptr;
  std::string names;
  for (const api::PriorityClass& one : known) {
    if (name.empty()) {
      if (one.global_default && (found == nullptr || one.value < found->value)) found = &one;
      continue;
    }
    if (one.name == name) return one;
    if (!one.name.starts_with("system-")) names += (names.empty() ? "" : ", ") + one.name;
  }
  if (name.empty()) return found != nullptr ? *found : api::PriorityClass();
  return Fail(ErrorCode::kNotFound,
              "spec.priorityClassName: there is no PriorityClass " + api::Printable(name) +
                  (names.empty() ? "; the cluster has none but the system's" : "; known are " + names));
}

}  // namespace trainyard::lifecycle
