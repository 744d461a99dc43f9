#include "operator/lifecycle/disk.h"

#include <algorithm>
#include <cmath>

namespace trainyard::lifecycle {

std::optional<double> SecondsUntilFull(const DiskUse& use) {
  const bool known = use.save_bytes > 0 && use.steps_per_save > 0 && use.step_seconds > 0 && use.free_bytes >= 0;
  if (!known || use.steps_left <= 0) return std::nullopt;
  const double there = std::max(0.0, std::round(use.directory_bytes / use.save_bytes));
  const double keep = static_cast<double>(std::max<int64_t>(1, use.keep_last));
  const double slots = std::floor(use.free_bytes / use.save_bytes);
  const double steps_left = static_cast<double>(use.steps_left);
  // Until as many are there as are kept, every save takes room, and one more does while it is written.
  const double filling = std::max(1.0, keep + 1 - there);
  double steps = 0;
  if (slots < filling) {
    steps = (slots + 1) * use.steps_per_save;
  } else {
    // After that only those that stay for their step do.
    if (use.keep_every_steps <= 0) return std::nullopt;
    steps = (slots - filling + 1) * static_cast<double>(use.keep_every_steps);
  }
  if (steps > steps_left) return std::nullopt;
  return steps * use.step_seconds;
}

}  // namespace trainyard::lifecycle
