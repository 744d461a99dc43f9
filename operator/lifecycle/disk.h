// When checkpoints fill the disk. Private to the room. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

namespace trainyard::lifecycle {

struct DiskUse {
  double free_bytes = 0;
  double directory_bytes = 0;    // of all checkpoints that are there
  double save_bytes = 0;         // of one
  int64_t keep_last = 1;         // of the newest
  int64_t keep_every_steps = 0;  // and the first at or after each multiple of it; 0: none
  double steps_per_save = 0;
  double step_seconds = 0;
  int64_t steps_left = 0;
};

// Seconds until a save finds no room; nullopt: none does before the job ends, or too little is known. Old checkpoints
// go only after a new one is there, so that one more than is kept has to fit. What others write is not foreseen.
std::optional<double> SecondsUntilFull(const DiskUse& use);

}  // namespace trainyard::lifecycle
