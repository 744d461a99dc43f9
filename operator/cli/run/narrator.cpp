#include "operator/cli/run/narrator.h"

#include <cmath>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/base/quantity.h"
#include "operator/cli/job_table.h"
#include "operator/cli/job_view.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;

std::string Gpus(int64_t count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

std::string StepOf(const api::Progress& p) {
  return "step " + std::to_string(p.step) + (p.steps > 0 ? " of " + std::to_string(p.steps) : "");
}

std::optional<Milliseconds> Eta(const api::Progress& p) {
  // Until this attempt has finished a step, the step time is that of an earlier one.
  if (!p.step_seconds || !p.tokens_per_second || p.steps <= p.step || *p.step_seconds <= 0) return std::nullopt;
  const double seconds = static_cast<double>(p.steps - p.step) * *p.step_seconds;
  if (!(seconds < 1e9)) return std::nullopt;
  return Milliseconds(static_cast<int64_t>(seconds * 1000));
}

// ", loss 2.531, 18.2k tokens/s, ETA 1m 20s", as far as known.
std::string Rates(const api::Progress& p, const char* separator) {
  std::string text;
  if (p.loss) text += separator + ("loss " + FormatLoss(*p.loss));
  if (p.tokens_per_second) text += separator + (FormatRate(*p.tokens_per_second) + " tokens/s");
  if (auto eta = Eta(p)) text += separator + ("ETA " + FormatDuration(*eta));
  return text;
}

}  // namespace

std::string DescribePlan(const api::PlanStatus& plan) {
  std::string text =
      Gpus(plan.gpus) + " (" + std::to_string(plan.per_node) + " per node, " + plan.product + "), " + plan.strategy;
  if (plan.micro_batch_size > 0) {
    text += ", micro batch " + std::to_string(plan.micro_batch_size) + " x " + std::to_string(plan.accumulation);
  }
  text += "; " + FormatCount(plan.parameters) + " parameters, " +
          FormatBinaryBytes(static_cast<double>(plan.bytes_per_gpu)) + " of " +
          FormatBinaryBytes(static_cast<double>(plan.capacity_bytes)) + " per GPU, checkpoints of " +
          FormatBytes(static_cast<double>(plan.checkpoint_bytes));
  if (!plan.why.empty()) text += "; " + plan.why;
  return text;
}

std::string LiveLine(const api::TrainingJob& job) {
  const api::JobStatus& s = job.status;
  std::string text(api::ToString(s.phase));
  if (s.progress && s.progress->steps > 0) {
    const api::Progress& p = *s.progress;
    constexpr int kBar = 20;
    const double part = std::min(1.0, static_cast<double>(p.step) / static_cast<double>(p.steps));
    const int filled = static_cast<int>(part * kBar);
    text += "  step " + std::to_string(p.step) + "/" + std::to_string(p.steps) + " [" +
            std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kBar - filled), '.') +
            "] " + std::to_string(static_cast<int>(part * 100)) + "%" + Rates(p, "  ");
    if (p.validation_loss) text += "  held-out " + FormatLoss(*p.validation_loss);
    if (s.gpus > 0) text += "  " + Gpus(s.gpus);
    if (s.phase != api::Phase::kRunning && !s.reason.empty()) text += "  " + s.reason;
  } else if (!s.reason.empty()) {
    text += "  " + s.reason;
  }
  return text;
}

void Narrator::SeePlan(const api::TrainingJob& job, std::vector<StoryEvent>& out) {
  const auto& plan = job.status.plan;
  if (!plan) return;
  const auto& old = last_.plan;
  const bool same = old && old->product == plan->product && old->gpus == plan->gpus &&
                    old->strategy == plan->strategy && old->per_node == plan->per_node;
  if (same) return;
  out.push_back({"plan", "plan: " + DescribePlan(*plan), api::StatusToJson(job.status)["plan"]});
}

void Narrator::SeePhase(const api::TrainingJob& job, std::vector<StoryEvent>& out) {
  const api::JobStatus& s = job.status;
  if (seen_ && s.phase == last_.phase && s.reason == last_.reason) return;
  if (s.phase == api::Phase::kPending && s.reason.empty()) return;  // nobody has looked at the job yet
  std::string text(api::ToString(s.phase));
  if (!s.reason.empty()) text += ": " + s.reason;
  out.push_back({"phase",
                 text,
                 {{"phase", api::ToString(s.phase)}, {"reason", s.reason}, {"attempt", s.attempt}, {"gpus", s.gpus}}});
}

void Narrator::SeeResize(const api::TrainingJob& job, std::vector<StoryEvent>& out) {
  const api::JobStatus& s = job.status;
  if (s.phase != api::Phase::kRunning || s.stop || s.attempt == running_attempt_) return;
  // The first attempt counts from when it runs; a later one once it trains, since then it is known where from.
  if (running_attempt_ != 0 && !TrainsNow(s)) return;
  if (running_attempt_ != 0 && running_gpus_ != s.gpus) {
    const Resize resize{running_gpus_, s.gpus, s.progress->resumed_from_step.value_or(0)};
    resizes_.push_back(resize);
    out.push_back({"resize",
                   "resized " + std::to_string(resize.from) + " -> " + Gpus(resize.to) + " at step " +
                       std::to_string(resize.step),
                   {{"from", resize.from}, {"to", resize.to}, {"step", resize.step}}});
  }
  running_gpus_ = s.gpus;
  running_attempt_ = s.attempt;
}

void Narrator::SeeProgress(const api::TrainingJob& job, TimePoint now, std::vector<StoryEvent>& out) {
  const api::JobStatus& s = job.status;
  // One that an attempt began with takes no time and is no news.
  const bool saved = s.checkpoint && s.checkpoint->step > 0 && s.checkpoint->seconds > 0;
  if (saved && (!last_.checkpoint || last_.checkpoint->step != s.checkpoint->step)) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.2f s", s.checkpoint->seconds);
    out.push_back({"checkpoint",
                   "checkpoint at step " + std::to_string(s.checkpoint->step) + ": " +
                       FormatBytes(static_cast<double>(s.checkpoint->bytes)) + " in " + seconds,
                   api::StatusToJson(s)["checkpoint"]});
  }
  if (!s.progress) return;
  const api::Progress& p = *s.progress;
  if (p.validation_loss && told_evaluation_ != p.validation_loss) {
    told_evaluation_ = p.validation_loss;
    // Status does not say at which step it was made: the trainer goes on while it is told.
    std::string text = "evaluation: held-out loss " + FormatLoss(*p.validation_loss);
    const double perplexity = std::exp(*p.validation_loss);
    json fields = {{"validationLoss", *p.validation_loss}};
    if (std::isfinite(perplexity)) {
      text += ", perplexity " + FormatLoss(perplexity);
      fields["validationPerplexity"] = perplexity;
    }
    if (p.initial_validation_loss && *p.initial_validation_loss != *p.validation_loss) {
      text += " (" + FormatLoss(*p.initial_validation_loss) + " at the start)";
    }
    out.push_back({"evaluation", text, std::move(fields)});
  }
  const bool due = !last_progress_ || now - *last_progress_ >= progress_every_;
  if (due && p.step != told_step_ && p.step > 0) {
    last_progress_ = now;
    told_step_ = p.step;
    json fields = api::StatusToJson(s)["progress"];
    if (auto eta = Eta(p)) fields["etaSeconds"] = static_cast<double>(eta->count()) / 1000;
    out.push_back({"progress", StepOf(p) + Rates(p, ", "), std::move(fields)});
  }
}

void Narrator::SeeHealth(const api::TrainingJob& job, std::vector<StoryEvent>& out) {
  for (const api::Condition& condition : job.status.conditions) {
    if (condition.type != "CheckpointHealthy") continue;
    const std::string problem = condition.status == "False" ? condition.message : "";
    if (!problem.empty() && problem != told_problem_) {
      out.push_back({"warning", "warning: " + problem, {{"reason", condition.reason}, {"message", problem}}});
    }
    told_problem_ = problem;
  }
}

std::vector<StoryEvent> Narrator::See(const api::TrainingJob& job, TimePoint now) {
  if (!first_) first_ = now;
  std::vector<StoryEvent> out;
  SeePlan(job, out);
  SeePhase(job, out);
  SeeResize(job, out);
  SeeHealth(job, out);
  SeeProgress(job, now, out);
  last_ = job.status;
  seen_ = true;
  return out;
}

StoryEvent Narrator::Summary(const api::TrainingJob& job, TimePoint now) const {
  const api::JobStatus& s = job.status;
  const Milliseconds taken = first_ ? now - *first_ : Milliseconds(0);
  std::string text(api::ToString(s.phase));
  json resizes = json::array();
  json fields = {{"phase", api::ToString(s.phase)},
                 {"reason", s.reason},
                 {"seconds", static_cast<double>(taken.count()) / 1000},
                 {"attempts", s.attempt}};
  text += ": ";
  if (s.phase != api::Phase::kSucceeded && !s.reason.empty()) text += s.reason + "; ";
  if (s.progress) {
    const api::Progress& p = *s.progress;
    text += StepOf(p);
    if (p.validation_loss) {
      text += ", held-out loss ";
      if (p.initial_validation_loss) text += FormatLoss(*p.initial_validation_loss) + " -> ";
      text += FormatLoss(*p.validation_loss);
    }
    fields["progress"] = api::StatusToJson(s)["progress"];
  } else {
    text += "no step";
  }
  for (const Resize& r : resizes_) {
    text += ", resized " + std::to_string(r.from) + " -> " + Gpus(r.to) + " at step " + std::to_string(r.step);
    resizes.push_back({{"from", r.from}, {"to", r.to}, {"step", r.step}});
  }
  if (s.checkpoint && s.checkpoint->step > 0) {
    text += ", last checkpoint at step " + std::to_string(s.checkpoint->step);
    fields["checkpoint"] = api::StatusToJson(s)["checkpoint"];
  }
  fields["resizes"] = std::move(resizes);
  return {"summary", text + ", in " + FormatDuration(taken), std::move(fields)};
}

}  // namespace trainyard::cli
