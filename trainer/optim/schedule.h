// The learning rate as a pure function of the step: nothing to save, nothing that a resume could get wrong.
// Thread-safety: pure.
#pragma once

#include <cstdint>

namespace trainyard::optim {

struct Schedule {
  enum class Type { kConstant, kCosine, kLinear, kWarmupStableDecay };
  enum class Shape { kLinear, kCosine, kSqrt };
  Type type = Type::kCosine;
  double peak = 3e-4;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double min_ratio = 0.1;        // the last step's rate over the peak; not of kConstant
  int64_t decay_steps = 0;       // of kWarmupStableDecay: the last so many steps
  Shape shape = Shape::kLinear;  // of kWarmupStableDecay
};

// Learning rate of update `step`, counted from 1. With w warm-up steps of T, d decay steps and the floor
// F = min_ratio * peak:
//   warm-up    peak * step / w for step <= w (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2)
//   kConstant  peak
//   kLinear    F + (peak - F) * (1 - x), x = (step - w) / (T - w) (Devlin et al., "BERT", 2019, appendix A.2)
//   kCosine    F + (peak - F) * (1 + cos(pi * x)) / 2 (Loshchilov and Hutter, "SGDR", 2017, equation 5, no restarts)
//   kWarmupStableDecay  peak until T - d (Hu et al., "MiniCPM", 2024, section 4), then with x = (step - (T - d)) / d
//     Shape::kLinear, kCosine as above
//     Shape::kSqrt F + (peak - F) * (1 - sqrt(x)) (Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond
//     Fixed Training Durations", 2024)
// What decays is at F at the last step and stays there beyond it.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace trainyard::optim
