#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::optim {
namespace {

// How much of the way from the peak to the floor is left when the part x of the decay is over, both from 0 to 1.
double Left(Schedule::Shape shape, double x) {
  switch (shape) {
    case Schedule::Shape::kLinear:
      return 1.0 - x;
    case Schedule::Shape::kCosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * x));
    case Schedule::Shape::kSqrt:
      return 1.0 - std::sqrt(x);
  }
  return 0.0;
}

}  // namespace

double LearningRate(const Schedule& s, int64_t step) {
  if (step <= s.warmup_steps && s.warmup_steps > 0)
    return s.peak * static_cast<double>(step) / static_cast<double>(s.warmup_steps);
  if (s.type == Schedule::Type::kConstant) return s.peak;
  const bool stable = s.type == Schedule::Type::kWarmupStableDecay;
  const int64_t from = stable ? std::max(s.warmup_steps, s.total_steps - s.decay_steps) : s.warmup_steps;
  if (step <= from) return s.peak;
  const double span = static_cast<double>(s.total_steps - from);
  const double done = span <= 0 ? 1.0 : std::min(1.0, static_cast<double>(step - from) / span);
  const auto shape = stable                              ? s.shape
                     : s.type == Schedule::Type::kCosine ? Schedule::Shape::kCosine
                                                         : Schedule::Shape::kLinear;
  const double floor = s.min_ratio * s.peak;
  return floor + (s.peak - floor) * Left(shape, done);
}

}  // namespace trainyard::optim
