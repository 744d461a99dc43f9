#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::optim {

double LearningRate(const Schedule& schedule, int64_t step) {
  const double peak = schedule.peak;
  if (step <= schedule.warmup_steps) {
    return schedule.warmup_steps == 0 ? peak : peak * static_cast<double>(step) / schedule.warmup_steps;
  }
  if (schedule.type == Schedule::Type::kConstant) return peak;
  const double span = static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  const double done = span <= 0 ? 1.0 : std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / span);
  const double floor = schedule.min_ratio * peak;
  return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace trainyard::optim
