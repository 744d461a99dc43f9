// spec.checkpoint.onDelete: Delete. A finalizer keeps a deleted job until a short-lived pod has removed its checkpoints
// from the volume. Nothing here may keep it for ever: it gives up with a Warning in a namespace that is being deleted,
// on a claim that is not there, when the pod says that it cannot, and after 10 minutes.
#include <algorithm>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/failure.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/steps.h"
#include "operator/lifecycle/unread.h"

namespace trainyard::lifecycle {
namespace {

constexpr Milliseconds kLongest{600'000};
constexpr Milliseconds kLook{30'000};
constexpr const char* kLeft = "CheckpointsLeft";

bool HasFinalizer(const api::TrainingJob& job) {
  const auto& finalizers = job.meta.finalizers;
  return std::find(finalizers.begin(), finalizers.end(), kCheckpointFinalizer) != finalizers.end();
}

bool Wanted(const Context& c) {
  const auto& checkpoint = c.job.spec.checkpoint;
  return checkpoint && checkpoint->on_delete == api::OnDelete::kDelete && c.job.spec.UsesBundledTrainer();
}

void LetGo(Context& c) { c.Act(Action::Kind::kRemoveFinalizer, c.job.meta.name); }

std::string Directory(const Context& c) {
  return "directory " + c.job.spec.checkpoint->path + " of volume " + c.job.spec.checkpoint->volume;
}

void GiveUp(Context& c, const std::string& why) {
  const std::string what = "the checkpoints in " + Directory(c) + " stay: " + why;
  c.s.reason = what;
  c.Say("Warning", kLeft, what);
  LetGo(c);
}

// Why it is of no use to wait any longer; empty: it may be.
std::string Hopeless(const Context& c) {
  const std::string& refused = c.in.refused;
  if (refused.find("is being terminated") != std::string::npos) return "the namespace is being deleted";
  if (const api::PodSnapshot* pod = c.removal; pod != nullptr) {
    if (ClaimIsMissing(pod->message)) return OneLine(pod->message, 160);
    if (pod->exit_code && *pod->exit_code != 0) return WordsOf(*pod);
  }
  if (c.in.now < *c.s.removing_since + kLongest) return "";
  std::string why = "they could not be removed in 10 minutes";
  if (!refused.empty()) return why + ": " + OneLine(refused, kRefusalText);
  if (c.removal != nullptr && !c.removal->message.empty()) why += ": " + OneLine(c.removal->message, 160);
  return why;
}

}  // namespace

Decision LetGoUnread(const api::TrainingJob& job, const std::string& problem) {
  Decision out;
  out.status = job.status;
  if (!job.meta.deletion_time || !HasFinalizer(job)) return out;
  Action action;
  action.kind = Action::Kind::kRemoveFinalizer;
  action.name = job.meta.name;
  out.actions.push_back(std::move(action));
  out.events.push_back({"Warning", kLeft, "its checkpoints stay: the job cannot be read: " + problem});
  return out;
}

void KeepFinalizer(Context& c) {
  const bool has = HasFinalizer(c.job);
  if (Wanted(c) && !has && !c.job.meta.deletion_time) c.Act(Action::Kind::kAddFinalizer, c.job.meta.name);
  if (!Wanted(c) && has) LetGo(c);
}

void RemoveCheckpoints(Context& c) {
  if (!c.job.meta.deletion_time || !Wanted(c) || !HasFinalizer(c.job) || c.out.refresh_pods) return;
  // Saves that are under way come first: the stop has its own time.
  const bool gone = std::all_of(c.mine.begin(), c.mine.end(), [&c](const auto* pod) { return c.Gone(*pod); });
  if (c.Live() || !gone || !c.Fresh()) return;
  if (c.s.attempt == 0) return LetGo(c);  // nothing has ever run
  if (!c.s.removing_since) c.s.removing_since = c.in.now;
  if (const std::string why = Hopeless(c); !why.empty()) return GiveUp(c, why);
  c.RequeueAt(*c.s.removing_since + kLongest);
  if (c.removal != nullptr && c.removal->exit_code == 0) {
    c.s.reason = "the checkpoints in " + Directory(c) + " are removed";
    c.Say("Normal", "CheckpointsRemoved", c.s.reason);
    return LetGo(c);
  }
  c.s.reason = "removing the checkpoints in " + Directory(c);
  c.Requeue(kLook);
  if (c.removal == nullptr) {
    c.Act(Action::Kind::kCreatePod, RemovalPodName(c.job), "", BuildRemovalPod(c.job, c.opt));
  } else if (c.removal->phase == api::PodPhase::kFailed && !c.removal->deleting) {
    c.Act(Action::Kind::kDeletePod, c.removal->name, c.removal->uid);  // failed by its node: another one follows
  }
}

}  // namespace trainyard::lifecycle
