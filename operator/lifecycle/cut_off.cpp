// A stop that was too short: the pod was killed at the end of its grace, and what it had not saved is lost. Nobody
// should have to find that out from the step that the next attempt begins at.
#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

constexpr const char* kWorkLost = "WorkLost";  // reason of CheckpointHealthy=False
constexpr int kExitSigkill = 128 + 9;

// It was told to stop and did not end by itself, whatever gave it its time: the kubelet or, moments before, the
// launcher.
bool CutOff(const api::PodSnapshot& pod) {
  return pod.deleting && pod.exit_code == kExitSigkill && pod.reason != "OOMKilled";
}

bool AnyCutOff(const Context& c) {
  return std::any_of(c.ranks.begin(), c.ranks.end(), [](const auto* pod) { return pod != nullptr && CutOff(*pod); }) ||
         std::any_of(c.in.ended.begin(), c.in.ended.end(), [&c](const api::PodSnapshot& pod) {
           return pod.attempt == c.s.attempt && pod.owner_uid == c.job.meta.uid && CutOff(pod);
         });
}

std::string Killed(int64_t attempt) {
  return "attempt " + std::to_string(attempt) + " was killed at the end of its grace";
}

// What is lost with it, in words; empty: nothing that we know of.
std::string Loss(const Context& c) {
  if (!c.job.spec.UsesBundledTrainer()) return "before it ended by itself: what it had not saved is lost";
  if (!c.job.spec.checkpoint) return "";  // nothing is ever saved
  // The newest that is known, whether or not it was time to copy it to status.
  const bool live = c.in.progress_attempt == c.s.attempt;
  int64_t step = c.s.progress ? c.s.progress->step : 0;
  int64_t saved = c.s.checkpoint ? c.s.checkpoint->step : 0;
  std::string phase = c.s.progress ? c.s.progress->trainer_phase : "";
  if (live && c.in.progress) {
    step = std::max(step, c.in.progress->step);
    phase = c.in.progress->trainer_phase;
  }
  if (live && c.in.checkpoint) saved = std::max(saved, c.in.checkpoint->step);
  if (phase == contract::phase::kStopped || phase == contract::phase::kSucceeded || step <= saved) return "";
  return "before it had saved: the work since step " + std::to_string(saved) + " is lost";
}

}  // namespace

std::string TellLostWork(Context& c) {
  if (!AnyCutOff(c)) return "";
  const api::Condition* told = FindCondition(c.s, kCheckpointHealthy);
  if (told != nullptr && told->reason == kWorkLost && told->message.starts_with(Killed(c.s.attempt))) return "";
  const std::string loss = Loss(c);
  if (loss.empty()) return "";
  const std::string message = Killed(c.s.attempt) + ", " + loss + "; a stop may take " +
                              std::to_string(c.job.spec.recovery.max_grace_seconds) +
                              " s at most (spec.recovery.maxGraceSeconds)";
  c.Condition(kCheckpointHealthy, false, kWorkLost, message);
  c.Say("Warning", kWorkLost, message);
  return message;
}

std::string LostWork(const Context& c, int64_t attempt) {
  const api::Condition* told = FindCondition(c.s, kCheckpointHealthy);
  const bool lost = told != nullptr && told->reason == kWorkLost && told->message.starts_with(Killed(attempt));
  return lost ? "; " + told->message : "";
}

void ForgetLostWork(Context& c) {
  const api::Condition* told = FindCondition(c.s, kCheckpointHealthy);
  if (c.job.spec.UsesBundledTrainer() || told == nullptr || told->reason != kWorkLost) return;
  c.Condition(kCheckpointHealthy, true, "RunsAgain", "attempt " + std::to_string(c.s.attempt) + " runs");
}

}  // namespace trainyard::lifecycle
