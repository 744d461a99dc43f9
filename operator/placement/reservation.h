// When a gang that does not fit now will, by what those that run say of themselves, and what it keeps until then; and
// who has to stop so that a more important one need not wait. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/placement/line.h"

namespace trainyard::placement {

// GPUs that somebody gives back one day: a running gang, or one that is about to start.
struct Departure {
  const RunningGang* running = nullptr;
  const LineEntry* going = nullptr;  // about to start: its GPUs are free in the yard, and kept for it
  std::optional<TimePoint> end;      // absent: nobody knows, or it is overdue
  TimePoint begin;
  bool stopping = false;  // it is leaving already, and does not hang
};
// In the order in which they are counted on: those that stop already, then by their end, then, of those of whom nothing
// is known, the first to have begun.
void SortDepartures(std::vector<Departure>& departures);

struct Reservation {
  GangPlacement placement;
  std::map<std::string, int64_t> reserved;  // node -> GPUs that are free now and needed then
  std::optional<TimePoint> start;
  std::vector<std::string> leaving;  // UIDs of those that stop already and hold some of these nodes
};
// The earliest moment at which `request` fits, when `departures` (sorted) have left one after the other. nullopt: it
// does not when all have. `request.held` is what others keep, those that are about to start included.
std::optional<Reservation> ReserveFor(const Yard& yard, const GangRequest& request,
                                      const std::vector<Departure>& departures);

struct Preemption {
  GangPlacement placement;
  std::vector<const RunningGang*> victims;
};
// The gangs of `candidates` that have to stop so that `request` fits, with those of request.released gone as well;
// nullopt: not even if all do. As few levels of priority as can be, the lowest first; then one victim alone, if one is
// enough; then those that lose the fewest GPU-seconds; and nobody without whom it would fit too.
std::optional<Preemption> FindVictims(const Yard& yard, const GangRequest& request,
                                      std::vector<const RunningGang*> candidates, TimePoint now);

// The part of `placement` that is free in the yard now, less `held`, and that `departing` (node -> GPUs) will not give.
std::map<std::string, int64_t> KeepNow(const Yard& yard, const GangRequest& request, const GangPlacement& placement,
                                       const std::map<std::string, int64_t>& departing);

// Whether every node of `placement` can still take its pod of `request`, beside `held`.
bool CanTakeAll(const Yard& yard, GangRequest request, const GangPlacement& placement,
                std::map<std::string, int64_t> held);

}  // namespace trainyard::placement
