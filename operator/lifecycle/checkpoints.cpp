// What the trainer says of its saves, copied into status.checkpoint, and what people should know of it: saves that
// fail, a checkpoint that reads back damaged, a disk that is going to be full. CheckpointHealthy.
#include <algorithm>
#include <cmath>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/disk.h"
#include "operator/lifecycle/failure_rate.h"
#include "operator/lifecycle/rounding.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

// Reasons of CheckpointHealthy.
constexpr const char* kSaveFailing = "SaveFailing";
constexpr const char* kDamaged = "Damaged";
constexpr const char* kDiskFilling = "DiskFilling";  // True: saves still work
constexpr const char* kRegressed = "Regressed";      // see progress.cpp
constexpr const char* kSaved = "Saved";

bool Failing(const api::CheckpointStatus& checkpoint) { return checkpoint.failures.value_or(0) > 0; }
bool ReadBackBad(const api::CheckpointStatus& checkpoint) { return checkpoint.verified == false; }

std::optional<int64_t> RoundBytes(std::optional<int64_t> bytes) {
  if (!bytes) return bytes;
  return static_cast<int64_t>(Round(static_cast<double>(*bytes), 3).value_or(0));
}

// A forecast that is a minute later with every look would be a write each time. Never in the past.
TimePoint Coarse(TimePoint when, TimePoint now) {
  const Milliseconds grain = when - now > std::chrono::hours(24) ? Milliseconds(3'600'000) : Milliseconds(300'000);
  return TimePoint((when.time_since_epoch() + grain - Milliseconds(1)) / grain * grain);
}

std::optional<TimePoint> FullAt(const Context& c, const api::CheckpointStatus& now) {
  const auto& spec = c.job.spec.checkpoint;
  const auto& progress = c.s.progress;
  if (!spec || !progress || !progress->step_seconds || !now.free_bytes) return std::nullopt;
  DiskUse use;
  use.free_bytes = static_cast<double>(*now.free_bytes);
  use.directory_bytes = static_cast<double>(now.directory_bytes.value_or(0));
  use.save_bytes = static_cast<double>(now.bytes);
  use.keep_last = spec->keep_last;
  use.keep_every_steps = spec->keep_every_steps;
  use.step_seconds = *progress->step_seconds;
  use.steps_left = progress->steps - progress->step;
  if (spec->every_steps) use.steps_per_save = static_cast<double>(*spec->every_steps);
  if (now.every_seconds && use.step_seconds > 0)
    use.steps_per_save = std::max(1.0, *now.every_seconds / use.step_seconds);
  const std::optional<double> seconds = SecondsUntilFull(use);
  constexpr double kFarAway = 10 * 365 * 86400.0;
  if (!seconds || *seconds > kFarAway) return std::nullopt;
  return Coarse(c.in.now + Milliseconds(static_cast<int64_t>(*seconds * 1000)), c.in.now);
}

// The words of what is wrong, worst first; empty reason: nothing is.
struct Trouble {
  const char* reason = "";
  bool healthy = false;
  std::string message;
};

Trouble TroubleOf(const api::CheckpointStatus& now) {
  const std::string last =
      now.step > 0 ? "the last good checkpoint is of step " + std::to_string(now.step) : "there is no good checkpoint";
  if (Failing(now)) {
    const std::string why = now.failure.empty() ? "" : ": " + now.failure;
    return {kSaveFailing, false,
            Plural(*now.failures, "save") + " in a row failed" + why + "; training goes on, " + last};
  }
  if (!now.damage.empty()) {
    return {kDamaged, false, "a checkpoint was read back with other bytes than were written: " + now.damage};
  }
  if (ReadBackBad(now)) {
    return {kDamaged, false,
            "the checkpoint of step " + std::to_string(now.step) + " was read back with other bytes than were written" +
                (now.failure.empty() ? "" : ": " + now.failure)};
  }
  if (now.full_at) {
    return {kDiskFilling, true,
            "the disk of the checkpoints will be full about " + FormatTime(*now.full_at) + ": " +
                std::to_string(*now.free_bytes / 1'000'000) + " MB are free and a save takes " +
                std::to_string(now.bytes / 1'000'000) + " MB"};
  }
  return {};
}

// Only what these rules have set do they take back, and that an attempt began further back than it should have, once it
// has saved.
bool MayTakeBack(const Context& c, const api::Condition* told, const api::CheckpointStatus& now) {
  if (told == nullptr) return false;
  if (told->reason == kRegressed) return c.s.progress && now.step > c.s.progress->resumed_from_step;
  return told->reason == kSaveFailing || told->reason == kDamaged || told->reason == kDiskFilling;
}

void Judge(Context& c, const api::CheckpointStatus& now) {
  const Trouble trouble = TroubleOf(now);
  const api::Condition* told = FindCondition(c.s, kCheckpointHealthy);
  if (*trouble.reason != '\0') {
    if (c.Condition(kCheckpointHealthy, trouble.healthy, trouble.reason, trouble.message)) {
      c.Say("Warning", trouble.reason, trouble.message);
    }
    return;
  }
  if (!MayTakeBack(c, told, now)) return;
  const std::string message = "the checkpoint of step " + std::to_string(now.step) + " is saved";
  c.Condition(kCheckpointHealthy, true, kSaved, message);
  c.Say("Normal", kSaved, message);
}

}  // namespace

std::optional<api::CheckpointStatus> SaidOfCheckpoints(const Context& c) {
  if (!c.in.checkpoint) return std::nullopt;
  api::CheckpointStatus out = *c.in.checkpoint;
  for (auto* seconds :
       {&out.stall_seconds, &out.write_seconds, &out.verify_seconds, &out.every_seconds, &out.cost_seconds}) {
    *seconds = Round(*seconds, 3);
  }
  out.free_bytes = RoundBytes(out.free_bytes);
  out.directory_bytes = RoundBytes(out.directory_bytes);
  out.failure = OneLine(out.failure);
  out.damage = OneLine(out.damage);
  const api::CheckpointStatus old = c.s.checkpoint.value_or(api::CheckpointStatus());
  out.mean_failure_hours = old.mean_failure_hours;
  out.failure_source = old.failure_source;
  out.full_at = old.full_at;
  return out;
}

bool IsNewsOfSaves(const Context& c, const api::CheckpointStatus& now) {
  if (c.Terminal()) return false;
  const api::CheckpointStatus old = c.s.checkpoint.value_or(api::CheckpointStatus());
  return Failing(old) != Failing(now) || ReadBackBad(old) != ReadBackBad(now) || old.damage != now.damage;
}

void TakeCheckpoint(Context& c, api::CheckpointStatus now) {
  if (!c.Terminal()) {
    now.full_at = FullAt(c, now);
    Judge(c, now);
  }
  c.s.checkpoint = std::move(now);
}

void FreezeFailureEstimate(Context& c) {
  const auto& spec = c.job.spec.checkpoint;
  if (!spec || !c.job.spec.UsesBundledTrainer()) return;
  if (spec->every_steps || spec->every_minutes) {
    if (!c.s.checkpoint) return;
    c.s.checkpoint->mean_failure_hours.reset();
    c.s.checkpoint->failure_source.clear();
    return;
  }
  const FailureEstimate estimate =
      EstimateFailures(TotalGpus(*c.s.placement), ExposureOf(c.s, c.in.now), c.OthersExposure());
  if (!c.s.checkpoint) c.s.checkpoint.emplace();
  c.s.checkpoint->mean_failure_hours = estimate.mean_hours;
  c.s.checkpoint->failure_source = estimate.source;
}

}  // namespace trainyard::lifecycle
