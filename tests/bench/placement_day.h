// A day on 640 nodes of 8 GPUs in 40 racks: jobs arrive, wait, run and go. The same arrivals are played to several ways
// of choosing nodes and of queueing, so that what differs is theirs. Time is simulated; no clock is read.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::bench {

enum class Choice { kBestFit, kFirstFit, kSpread };
enum class Queue {
  kFifo,  // nobody overtakes
  kLine,  // the operator's own: backfill with a reservation for the head
};

struct DayOptions {
  uint64_t seed = 0;
  double load = 0.85;  // offered: GPU-hours asked per GPU-hour there is
  Choice choice = Choice::kBestFit;
  Queue queue = Queue::kFifo;
};

// Of one day of 24 hours after 6 hours in which the yard fills. Waits in minutes; who has not started when the day ends
// has waited until then.
struct Day {
  double utilisation = 0;     // GPU-hours in use of those there are
  double one_rack_share = 0;  // of gangs of several nodes
  double racks_per_gang = 0;  // the same
  // 95th percentile: pods of a part of a node, gangs of 1 to 4 nodes, gangs of 5 to 16 nodes.
  double wait_small = 0, wait_medium = 0, wait_large = 0;
  double wait_mean = 0;
  int64_t arrived = 0, not_started = 0;
};

Day PlayDay(const DayOptions& options);

}  // namespace trainyard::bench
