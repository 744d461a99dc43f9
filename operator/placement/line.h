// The line of gangs that wait for GPUs: who comes first, what is kept for whom, and who must stop for whom.
// Order: priority high first, then the earlier creation, then the UID. EASY backfill (Lifka, "The ANL/IBM SP scheduling
// system", 1995; what Slurm's backfill does with few reservations): a gang that does not fit becomes a head unless it
// could use nodes on which a head before it is to start: behind that one it waits. A head gets the earliest moment, by
// the estimates of those that run, at which it fits, and of its nodes it keeps what is free already; whoever comes
// behind takes what is left, or what it will have given back by then by its own estimate. So small jobs fill holes and
// never delay a large one, and gangs that share no nodes do not wait for each other.
// Pure and deterministic. Thread-safety: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "operator/base/clock.h"
#include "operator/placement/place.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// A job that is planned and may start: not suspended, not in a back-off, nothing of it placed.
struct WaitingGang {
  std::string uid;
  std::string name;  // "namespace/name"
  int64_t priority = 0;
  bool may_preempt = true;
  bool elastic = false;                  // it takes less if that is what there is
  bool failed_start = false;             // its last attempt ended before it ran
  TimePoint since;                       // its creation: what it waited in earlier turns counts as well
  TimePoint not_before;                  // it is in no line before: it backs off
  std::optional<Milliseconds> estimate;  // how long it would run, where that is known
  GangRequest request;                   // `held` and `released` are FormLine's to fill in
  bool operator==(const WaitingGang&) const = default;
};

// A job whose attempt holds GPUs.
struct RunningGang {
  std::string uid;
  std::string name;  // "namespace/name"
  int64_t priority = 0;
  std::vector<Booking> holds;
  TimePoint placed_at;
  TimePoint saved_at;                     // of its last checkpoint, or when it began: what it did since would be lost
  std::optional<TimePoint> expected_end;  // by its own estimate; of one that stops: when it must be gone
  bool stopping = false;                  // it is leaving for good, or for as long as others want its GPUs
  bool preemptible = true;
  bool operator==(const RunningGang&) const = default;

  int64_t Gpus() const;
  // It stops for longer than it may: nobody knows when its GPUs come free, and to stop it again would not help.
  bool Hangs(TimePoint now) const { return stopping && expected_end && *expected_end <= now; }
  bool Leaves(TimePoint now) const { return stopping && !Hangs(now); }
};

struct LineEntry {
  std::string uid;
  std::string name;
  int64_t priority = 0;
  int64_t gpus = 0;
  int64_t per_node = 0;
  std::vector<std::string> products;  // as asked for
  TimePoint since;
  std::optional<Milliseconds> estimate;
  int64_t position = 0;  // 1 is next
  bool elastic = false;
  bool failed_start = false;
  bool fits = false;         // now, beside what those ahead keep: it is about to start on `placement`
  bool started = false;      // it has left the line since
  bool never = false;        // it would not fit if every job ended: nothing is kept for it
  bool untried = false;      // too many before it were tried in vain: whether it fits is not known
  bool making_room = false;  // others stop, or are to stop, and it starts on `placement` when they are gone
  // Since when it would not fit even without all others, and keeps what it kept before that: a node may be back soon.
  std::optional<TimePoint> lost_since;
  std::optional<GangRequest> asked;  // if it fits: what `placement` answers
  // Where it starts: now if it fits, at `expected_start` if that is reserved.
  std::optional<GangPlacement> placement;
  std::map<std::string, int64_t> reserved;  // node -> GPUs that are free now and kept for it
  std::optional<TimePoint> expected_start;  // absent: now, or nobody can say
  std::vector<std::string> victims;         // UIDs of running jobs that must stop for it
  std::vector<std::string> leaving;         // UIDs of those that stop already and whose GPUs it gets
  size_t ahead = 0;                         // index + 1 of the entry that it must not delay; 0: none
  std::vector<std::string> holders;         // UIDs of running jobs that hold what it waits for, the largest first,
  size_t more_holders = 0;                  // and how many more do
  int64_t foreign_gpus = 0;                 // held by pods that are of no job of ours, on nodes of its product
};

struct Line {
  std::vector<LineEntry> entries;  // in order
  TimePoint formed_at;
  // When time alone changes the line: someone's back-off ends, or an estimate has run out.
  std::optional<TimePoint> until;

  const LineEntry* Find(std::string_view uid) const;
  // What those ahead of this job keep from it now, node -> GPUs; for one that is not in the line: what all keep. What
  // is reserved for later does not count for one that will have given it back by then.
  std::map<std::string, int64_t> HeldFor(std::string_view uid) const;
  // The same for that job if it ran for `estimate`, which a smaller size may change.
  std::map<std::string, int64_t> HeldFor(std::string_view uid, const std::optional<Milliseconds>& estimate) const;
  // Who this running job must stop for; null: nobody.
  const LineEntry* PreemptedBy(std::string_view uid) const;

  // Whether a gang that would run for `estimate` from now on has ended when `entry` is to start.
  bool EndsBefore(const std::optional<Milliseconds>& estimate, const LineEntry& entry) const;

  struct Holder {
    std::string name;
    int64_t priority = 0;
    int64_t gpus = 0;
    bool stopping = false;
    std::optional<TimePoint> expected_end;  // as RunningGang has it
  };
  // Whoever asks for the same and must respect at least the reservations of `heads` fits as little.
  struct Refused {
    GangRequest request;
    std::vector<size_t> heads;  // entries
  };
  std::vector<Refused> refused;
  std::vector<size_t> heads;                        // entries with a reservation, in order
  std::unordered_map<std::string, int64_t> free;    // product -> free GPUs that no gang is about to take; may be empty
  std::unordered_map<std::string, Holder> holders;  // running jobs that an entry names, by UID
  std::unordered_map<std::string, size_t> index;    // UID -> entry
  std::unordered_map<std::string, size_t> stops;    // UID of a victim -> entry that it stops for
};

// `previous`, if given, was formed a moment ago: who fitted keeps his place as long as it is still there, so that a
// line of thousands is not placed anew for every change.
Line FormLine(const Yard& yard, const std::vector<WaitingGang>& waiting, const std::vector<RunningGang>& running,
              TimePoint now, const Line* previous = nullptr);
// The same without copies; no pointer is null. `running` is asked only if somebody has to wait, and once.
using RunningGangs = std::vector<const RunningGang*>;
Line FormLine(const Yard& yard, std::vector<const WaitingGang*> waiting, const std::function<RunningGangs()>& running,
              TimePoint now, const Line* previous = nullptr);

// Puts a newcomer at the end of a line that is up to date with the yard, if it is plain that he has to wait and keeps
// nothing. False: it is not; the line has to be formed anew.
bool JoinAtEnd(const Yard& yard, Line& line, const WaitingGang& gang);
// Takes a gang that fits out of the line, for it starts now on what was kept for it: the others stay where they are.
// False: it was not about to start there.
bool LeaveToStart(Line& line, std::string_view uid, const std::vector<Booking>& claims);
// One that was to stop for another does so now, as the line has it: the other counts on it, and nobody else is chosen.
// False: it was not to stop.
bool StopAsDue(Line& line, const RunningGang& gang);
// Whether an entry that fits still does, after others have taken more of the yard.
bool StillFits(const Yard& yard, const Line& line, const LineEntry& entry);

// Of one that has to wait for nodes that are not there.
inline constexpr const char* kNeverFits = "it would not fit if every job ended";
// Why the entry has not started, beside what it lacks: whose turn it is, who holds the space and for how long, who
// makes room, when it is expected to start. One line; changes with these and hardly with `now`. Empty: it fits.
std::string WhyWaits(const Line& line, const LineEntry& entry, TimePoint now);

}  // namespace trainyard::placement
