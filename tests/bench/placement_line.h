// What it costs to form the queue when a burst of jobs waits for 500 nodes of 8 GPUs.
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/bench/report.h"

namespace trainyard::bench {

enum class Burst {
  kFits,   // jobs of one GPU, and all nodes are empty: each gets its place
  kWaits,  // the jobs of a day, and running gangs hold 90 % of the nodes: few fit, reservations are made
};

// Milliseconds of FormLine for `waiting` jobs, of nothing that was formed before. Baseline: the placement of each of
// them alone, with no queue.
Row MeasureLine(const std::string& name, Burst burst, int64_t waiting, int pairs);

}  // namespace trainyard::bench
