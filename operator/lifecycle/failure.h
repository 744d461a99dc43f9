// What a failed rank means: its class, whether the attempt's other failures are its echo, and which budget pays.
// Private to the room. Thread-safety: as Context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/lifecycle/context.h"

namespace trainyard::lifecycle {

// Who pays for a restart. kFree: preemption and other acts of an operator; kNever: trying again cannot help.
enum class Budget { kFree, kUser, kInfrastructure, kNever };

struct RankFailure {
  int64_t rank = -1;
  std::string node;
  std::string failure_class;  // one of contract::failure_class, or of the table in failure.cpp
  std::string message;        // one line: what happened to this rank
  int severity = 0;           // the highest of an attempt is the cause, the others are its echo
  Budget budget = Budget::kInfrastructure;
  bool blames_node = false;
  int64_t newer_attempt = 0;  // class Fenced: the attempt of this job that owns the checkpoint directory

  bool RefusedByNode() const;  // its node did not take it: the gang never came up
  bool WentWithNode() const;   // its node is lost, or threw it out: that says nothing of the job
  bool IsEcho() const;         // of another rank's failure, unless nothing else failed
};

// How rank `rank` of the live attempt failed; nullopt while it has not. `pod` null: it was there and vanished.
std::optional<RankFailure> FailureOf(Context& c, int64_t rank, const api::PodSnapshot* pod);

// What a pod that has ended said of it, in one line; empty: nothing.
std::string WordsOf(const api::PodSnapshot& pod);

// One of a class of failure.cpp's table.
RankFailure MakeFailure(int64_t rank, const std::string& node, const std::string& failure_class, std::string message);

// Reason of Ready while a rank of a gang that ran has failed and its cause may still show.
inline constexpr const char* kRankFailed = "RankFailed";
// Whether all pods of the live attempt ran at once, by what Ready says.
bool HasRun(const Context& c);

// Ends the attempt: counts against the budget, and either asks for another attempt after a back-off (status.stop,
// Recovering) or fails the job for good. Pods that still run are deleted; those that ended are kept for their logs.
void EndAttempt(Context& c, const RankFailure& cause, int64_t failed_ranks);

// The job is at `newest`, an attempt of it that the status had not heard of: nothing is claimed any more, and whatever
// pods there are must be gone before the next attempt, which is above it.
void AdoptAttempt(Context& c, int64_t newest);

// What the pods of an attempt get that ended with a failure of that class: a rank that hangs is not waited for, one
// that saves is. Where a node went and took a rank along, those of our trainer can take no step and end no save, and
// may only find out at the deadline of a collective.
int64_t EndedGraceSeconds(const Context& c, std::string_view failure_class);

// Adds one failure: the next attempt waits longer. A healthy period before it clears the slate first.
void CountFailure(Context& c);
void Forgive(Context& c);
// The next attempts avoid the node while others fit (penalties.h).
void BlameNode(Context& c, const std::string& node);

}  // namespace trainyard::lifecycle
