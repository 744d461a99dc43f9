// What rank 0 says of its progress, copied into status: rounded, and only as often as people look.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <tuple>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/rounding.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

api::Progress Rounded(const api::Progress& raw) {
  api::Progress out = raw;
  out.loss = Round(raw.loss, 5);
  out.validation_loss = Round(raw.validation_loss, 6);
  out.initial_validation_loss = Round(raw.initial_validation_loss, 6);
  out.validation_perplexity = Round(raw.validation_perplexity, 5);
  out.tokens_per_second = Round(raw.tokens_per_second, 3);
  out.mfu = Round(raw.mfu, 3);
  out.step_seconds = Round(raw.step_seconds, 3);
  out.load_seconds = Round(raw.load_seconds, 3);
  if (auto& time = out.step_time) {
    for (auto* part : {&time->data, &time->compute, &time->communication, &time->optimizer, &time->checkpoint}) {
      *part = Round(*part, 3);
    }
  }
  return out;
}

// A new attempt knows nothing until it has read the checkpoint, and nothing ever if it ends before: how far the job has
// come stays in sight.
void KeepWhatIsNotKnownYet(api::Progress& now, const api::Progress& old) {
  if (now.resumed_from_step) return;
  if (now.step == 0) now.step = old.step;
  if (now.steps == 0) now.steps = old.steps;
  if (!now.loss) now.loss = old.loss;
  if (!now.validation_loss) now.validation_loss = old.validation_loss;
  if (!now.initial_validation_loss) now.initial_validation_loss = old.initial_validation_loss;
  if (!now.validation_perplexity) now.validation_perplexity = old.validation_perplexity;
}

void KeepStepTime(const Context& c, api::Progress& now, const api::Progress* old) {
  if (now.step_seconds) {
    now.step_gpus = TotalGpus(*c.s.placement);
  } else if (old != nullptr) {
    now.step_seconds = old->step_seconds;
    now.step_gpus = old->step_gpus;
  }
}

auto Tie(const api::Progress& p) {
  return std::tie(p.step, p.steps, p.loss, p.validation_loss, p.initial_validation_loss, p.validation_perplexity,
                  p.tokens_per_second, p.mfu, p.step_seconds, p.step_time, p.step_gpus, p.trainer_phase,
                  p.resumed_from_step, p.parameter_hash, p.state_hash, p.loaded_state_hash, p.load_seconds,
                  p.load_bytes, p.memory, p.rank_memory, p.loss_spike, p.skipped_steps);
}

// Once per attempt, when the trainer first says where it resumed: not before the last step known to be durable.
void JudgeResume(Context& c, const api::Progress& now) {
  bool first = now.resumed_from_step && !(c.s.progress && c.s.progress->resumed_from_step);
  if (!first || !c.job.spec.checkpoint || c.job.spec.checkpoint->resume != api::Resume::kLatest) return;
  int64_t durable = c.s.checkpoint ? c.s.checkpoint->step : 0;
  std::string from =
      "attempt " + std::to_string(c.s.attempt) + " resumed from step " + std::to_string(*now.resumed_from_step);
  if (*now.resumed_from_step == 0 && durable == 0) {
    const auto& source = c.job.spec.checkpoint->resume_from;
    const std::string why = source && source->weights_only
                                ? "with the weights of " + source->path + " of volume " + source->volume
                                : "there was no checkpoint to resume from";
    c.Condition(kCheckpointHealthy, true, "NoneYet",
                "attempt " + std::to_string(c.s.attempt) + " began at step 0: " + why);
    return;
  }
  if (*now.resumed_from_step >= durable) {
    c.Condition(kCheckpointHealthy, true, "Resumed", from);
    return;
  }
  std::string message = from + ", but step " + std::to_string(durable) +
                        " was durable: newer checkpoints are missing "
                        "or damaged, see `trainyard checkpoints verify`";
  c.Condition(kCheckpointHealthy, false, "Regressed", message);
  c.Say("Warning", "Regressed", message);
}

// New factor of a group of terms: what is measured over what was estimated with the factor that the estimate contains.
// To the hundredth, and bounded as the plan bounds it; nothing is learnt where either side is nothing.
void Correct(double& factor, double contained, double measured, double estimated) {
  if (!(measured > 0) || !(estimated > 0)) return;
  factor = std::clamp(std::round(100 * contained * measured / estimated) / 100, 0.5, 2.0);
}

// What this attempt measured of its own plan, for the next one's.
void Measure(Context& c, const api::Progress& now) {
  constexpr int64_t kWarmUp = 10;                           // steps that compile, allocate and fill caches
  if (!c.s.plan || c.s.plan->bytes.gradients == 0) return;  // a plan of before plans had bytes
  const api::PlanStatus& plan = *c.s.plan;
  api::PlanCorrections measured = c.s.measured.value_or(plan.corrections);
  if (now.memory) {
    const api::MemoryStatus& m = *now.memory;
    const auto sum = [](std::initializer_list<int64_t> terms) {
      double total = 0;
      for (int64_t bytes : terms) total += static_cast<double>(bytes);
      return total;
    };
    const api::PlanBytes& b = plan.bytes;
    // A shard of FP32 weights is planned as weights and held as the master copy. Gradients are left out: their highest
    // value has those that are on their way.
    const bool sharded =
        plan.strategy == api::ToString(api::Strategy::kFsdp) || plan.strategy == api::ToString(api::Strategy::kHsdp);
    Correct(measured.states, plan.corrections.states, sum({m.master, m.optimizer}),
            sum({b.master, b.optimizer, sharded ? b.weights : 0}));
    Correct(measured.activations, plan.corrections.activations, sum({m.activations_peak}),
            sum({b.activations, b.logits}));
    // Weights beyond those at rest are gathered ones, which the plan counts as buffers.
    Correct(measured.buffers, plan.corrections.buffers, sum({m.params, m.buffers, sharded ? 0 : -b.weights}),
            sum({b.buffers}));
  }
  // Of this attempt: `now` may keep the step time of an earlier one.
  if (c.in.progress->step_seconds && now.step_seconds && plan.step_seconds &&
      now.step >= now.resumed_from_step.value_or(0) + kWarmUp) {
    Correct(measured.step_seconds, plan.corrections.step_seconds, *now.step_seconds, *plan.step_seconds);
  }
  if (measured != plan.corrections || c.s.measured) c.s.measured = measured;
}

}  // namespace

void ReadProgress(Context& c) {
  if (!c.s.placement || c.in.progress_attempt != c.s.attempt || (!c.in.progress && !c.in.checkpoint)) return;
  bool due = !c.s.progress_time || c.in.now >= *c.s.progress_time + c.opt.progress_interval;
  bool changed = false;
  if (c.in.progress) {
    api::Progress now = Rounded(*c.in.progress);
    const api::Progress* old = c.s.progress ? &*c.s.progress : nullptr;
    if (old != nullptr) KeepWhatIsNotKnownYet(now, *old);
    KeepStepTime(c, now, old);
    due = due || old == nullptr || old->trainer_phase != now.trainer_phase ||
          old->resumed_from_step != now.resumed_from_step || old->parameter_hash != now.parameter_hash ||
          old->state_hash != now.state_hash;
    if (c.Terminal()) {
      // What the last words add may still come in late, but nothing goes back.
      due = old == nullptr || now.step > old->step || now.trainer_phase != old->trainer_phase;
    }
    changed = old == nullptr || Tie(*old) != Tie(now);
    if (due && changed) {
      JudgeResume(c, now);
      Measure(c, now);
      c.s.progress = now;
    }
  }
  if (auto checkpoint = SaidOfCheckpoints(c); checkpoint && checkpoint != c.s.checkpoint) {
    due = due || IsNewsOfSaves(c, *checkpoint);
    changed = true;
    if (due) TakeCheckpoint(c, *std::move(checkpoint));
  }
  if (!changed) return;
  if (due) {
    c.s.progress_time = c.in.now;
  } else {
    c.RequeueAt(*c.s.progress_time + c.opt.progress_interval);
  }
}

}  // namespace trainyard::lifecycle
