// The learning rate as a pure function of the step. Thread-safety: pure.
#pragma once

#include <cstdint>

namespace trainyard::optim {

struct Schedule {
  enum class Type { kConstant, kCosine };
  Type type = Type::kCosine;
  double peak = 3e-4;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double min_ratio = 0.1;  // of kCosine: the last step's rate over the peak
};

// Learning rate of update `step`, counted from 1. Linear warm-up peak*step/warmup_steps reaches the peak at
// step == warmup_steps; cosine then falls from the peak to min_ratio*peak at step == total_steps
// (Loshchilov and Hutter, "SGDR", 2017, equation 5, without restarts), constant stays.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace trainyard::optim
