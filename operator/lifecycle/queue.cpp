// The queue as a job sees it: what it says while it waits, and how often; and how one that runs makes room for a more
// important one. Who waits for whom is decided in placement/line.h.
#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/penalties.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

// Of so many at the head of the line the reason is kept current; it ages in proportion further back. So a line of
// thousands that moves costs a few writes per second, and not one per job and interval.
constexpr int64_t kCurrent = 100;

std::string Describe(const placement::LineEntry& entry) {
  return entry.name + " (" + Plural(entry.gpus, "GPU") + ", priority " + std::to_string(entry.priority) + ")";
}

}  // namespace

void Wait(Context& c, const placement::Line& line, const placement::LineEntry& turn) {
  const int64_t age = std::max<int64_t>(1, turn.position / kCurrent);
  c.Requeue(c.opt.placement_retry * age);
  c.out.concerns = turn.victims;
  // The line knows what the status says: one that waits for long stops avoiding nodes by this.
  ForgetOldPenalties(c.s, c.in.now, c.opt.penalty_period);
  const bool room = turn.making_room;
  const std::string reason = room ? "MakingRoom" : "NoRoom";
  const api::Condition* told = FindCondition(c.s, kPlaced);
  const bool told_this = c.s.phase == api::Phase::kQueued && c.s.told_at && told != nullptr &&
                         told->status == "False" && told->reason == reason &&
                         told->observed_generation == c.job.meta.generation;
  if (told_this) {
    const TimePoint due = *c.s.told_at + c.opt.reason_interval * age;
    if (c.in.now < due) return c.RequeueAt(due);
  }
  const std::string lacks = WhyNot(c, *c.plan, line);
  std::string why = placement::WhyWaits(line, turn, c.in.now);
  if (turn.ahead > 0 && !WouldEverFit(c, *c.plan)) why += std::string(why.empty() ? "" : "; ") + placement::kNeverFits;
  std::string text = lacks + (lacks.empty() || why.empty() ? "" : "; ") + why;
  if (turn.ahead == 0 && c.s.undone_generation == c.job.meta.generation && c.Priority().preempts) {
    text += "; its last attempt ended before it ran, so no other job is stopped for it";
  }
  if (told_this && text == told->message) return;
  c.s.told_at = c.in.now;
  if (c.Condition(kPlaced, false, reason, text)) c.Say(room ? "Normal" : "Warning", reason, text);
  c.SetPhase(api::Phase::kQueued, text);
}

void StopForPreemption(Context& c) {
  if (!c.Live() || c.Stopping() || c.settling || c.out.refresh_pods || !c.MayBePreempted()) return;
  const placement::LineEntry* by = c.Line().PreemptedBy(c.job.meta.uid);
  if (by != nullptr) Stop(c, kStopPreempted, "to make room for " + Describe(*by));
}

}  // namespace trainyard::lifecycle
