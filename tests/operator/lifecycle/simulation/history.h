// One history: a cluster, one or two operators and a few hundred events in an order that a seed decides, then a calm
// end. After each event the invariants are checked. Thread-safety: histories are independent of one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::lifecycle::simulation {

struct Outcome {
  std::string violation;           // empty: all held
  std::vector<std::string> trace;  // only when asked for
  // What the history got to see.
  int64_t succeeded = 0, failed = 0, attempts = 0, restarts = 0, preempted = 0;
};

Outcome RunHistory(uint64_t seed, bool trace);

struct Summary {
  int64_t histories = 0;
  int64_t failed_seed_count = 0;
  uint64_t first_bad_seed = 0;
  std::string first_violation;
  int64_t succeeded = 0, failed = 0, attempts = 0, restarts = 0, preempted = 0;
};

// Histories seed, seed + 1, ... on all cores; stops early at the first violation.
Summary RunHistories(uint64_t seed, int64_t count);

// TRAINYARD_SEED, else a random one; TRAINYARD_HISTORIES, else `usual`.
uint64_t SeedFromEnvironment();
int64_t CountFromEnvironment(int64_t usual);

}  // namespace trainyard::lifecycle::simulation
