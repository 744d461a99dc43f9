// The steps of a decision, in the order in which decide.cpp takes them. Each is one policy file, and each leaves the
// status such that the actions it asks for are covered by it. Private to the room. Thread-safety: as Context.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/lifecycle/context.h"
#include "operator/placement/place.h"

namespace trainyard::lifecycle {

// progress.cpp: copies what rank 0 says, rounded and not too often; CheckpointHealthy.
void ReadProgress(Context& c);

// checkpoints.cpp: what the trainer says of its saves, rounded, with what the operator knows of them; nullopt: nothing.
std::optional<api::CheckpointStatus> SaidOfCheckpoints(const Context& c);
// Whether people should know of it at once.
bool IsNewsOfSaves(const Context& c, const api::CheckpointStatus& now);
// Into status, with the forecast of the disk; CheckpointHealthy.
void TakeCheckpoint(Context& c, api::CheckpointStatus now);
// At a claim: how often the attempt will fail, where the cadence of its saves hangs on that.
void FreezeFailureEstimate(Context& c);

// planning.cpp: validation and the frozen plan of this generation; Planned.
void JudgePlan(Context& c);
// A plan of the job as if spec.gpus.count were `count`; nullopt when there is none. 0: as the spec says.
std::optional<api::PlanStatus> PlanFor(Context& c, int64_t count, std::string* problem);

// path_user.cpp: why the job may not start beside another that takes one of its directories; empty: nobody does, or it
// runs already.
std::string PathInUse(Context& c);

// exits.cpp: success, failure or a gang that did not come up; may set the terminal phase or a stop.
void ObserveExits(Context& c);
std::string SuccessText(const Context& c);
// Whether the scheduler says that a claim is not there, or goes: nothing that a node or time does starts such a pod.
bool ClaimIsMissing(const std::string& message);

// stop.cpp
void Stop(Context& c, const char* reason, const std::string& why);  // writes status.stop, deletes the attempt's pods
// Takes back a gang that did not come up: no budget pays, but it waits, and the nodes of `held_up` ranks are avoided:
// only those that can have been in their way. Until an attempt has run, it stops no other job for itself.
void Undo(Context& c, const std::string& why, const std::vector<size_t>& held_up);
// The same where its nodes have changed since they were claimed, or another has its directory: that says nothing of the
// job.
void UndoForNodes(Context& c, const std::string& why);
void StopForDeletion(Context& c);
void StopForSuspend(Context& c);
void ContinueStop(Context& c);  // deletes again what still is there
void Release(Context& c);       // ends the attempt once all its pods are gone
// Deletes a pod of an attempt that has ended: it gets no time to finish steps, since it may hang.
void DeleteLost(Context& c, const api::PodSnapshot& pod);

// cut_off.cpp: a stop that ended with SIGKILL before the checkpoint was written. Tells it once, by an event and
// CheckpointHealthy, and returns the line for people; empty: no such thing, or it has been told.
std::string TellLostWork(Context& c);
// "; " and that line of `attempt`; empty: there is none.
std::string LostWork(const Context& c, int64_t attempt);
// A program of a user never says where it resumed: that it runs again is all that is known.
void ForgetLostWork(Context& c);

// resize.cpp: stops the attempt when another size is wanted and has a place.
void StopForResize(Context& c);

// resize_track.cpp: status.resize. Another size is wanted (and again, as long as it is), or no longer; the attempt is
// stopped for it; it has failed, so that an elastic job may come back smaller; its pods are gone; a claim follows; and
// what the new attempt does until its first step.
void WantSize(Context& c, int64_t gpus, const std::string& why);
void WantNoSize(Context& c);
void StopsForSize(Context& c);
void LostSize(Context& c, const std::string& why);
void SizeIsGone(Context& c);
void ClaimsSize(Context& c);
void WatchSize(Context& c);

// claim.cpp: where the job could run now, what it holds itself counted as free: either it is about to leave that, or it
// has just left it and the books do not know yet.
struct Choice {
  api::PlanStatus plan;
  placement::GangPlacement placement;
};
// By `wanted`, or, if the job is elastic, by the largest of its smaller plans that has a place beside what `line` keeps
// for others.
std::optional<Choice> Choose(Context& c, const api::PlanStatus& wanted, const placement::Line& line);
// The words of why `plan` has no place beside what `line` keeps for others: they cost more than to look.
std::string WhyNot(Context& c, const api::PlanStatus& plan, const placement::Line& line);
// Whether every pod of every attempt before this one can do no more harm.
bool PredecessorsGone(Context& c, int64_t attempt);
// Whether `plan` would have a place if every job ended. Costs a search and a look at every node.
bool WouldEverFit(Context& c, const api::PlanStatus& plan);
void Claim(Context& c);

// node_watch.cpp: says which nodes under the running gang take no new one; status.advice.
void WatchNodes(Context& c);

// queue.cpp: what a job says while it waits, and how often; and how one that runs makes room for a more important one.
void Wait(Context& c, const placement::Line& line, const placement::LineEntry& turn);
void StopForPreemption(Context& c);

// start.cpp: creates what is missing, un-gates the whole gang at once, says when it runs.
void Advance(Context& c);

// removal.cpp: spec.checkpoint.onDelete. The finalizer is there as long as the spec asks for it; of a deleted job, the
// pod that removes its checkpoints.
void KeepFinalizer(Context& c);
void RemoveCheckpoints(Context& c);

// sweep.cpp
void SweepOldAttempts(Context& c);  // pods of attempts before the live one
void SweepTerminal(Context& c);     // what a finished job leaves behind

}  // namespace trainyard::lifecycle
