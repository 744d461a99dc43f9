// Tells a loss that jumps from one that merely varies: a warning for people, never a reason to stop.
// Thread-safety: one thread. PURE: what it says follows from the losses it was given.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace trainyard::observe {

struct LossSpike {
  int64_t step = 0;
  double loss = 0;
  double median = 0;     // of the window before it
  double threshold = 0;  // that it exceeds
};

class SpikeDetector {
 public:
  struct Options {
    size_t window = 64;     // losses that a new one is compared with
    size_t least = 16;      // fewer say nothing
    double deviations = 8;  // k
    double least_jump =
        0.1;  // a loss at least this part of the median above it: a flat window must not make noise alarming
  };
  SpikeDetector() : SpikeDetector(Options{}) {}
  explicit SpikeDetector(Options options) : options_(options) {}

  // The spike that `loss` of `step` is, if it is one: loss > m + max(k * 1.4826 * MAD, least_jump * m), m being the
  // median and MAD the median absolute deviation of the window before it (1.4826 makes it the standard deviation of
  // normal noise: Hampel, "The influence curve and its role in robust estimation", 1974). Spikes join the window like
  // any loss, and being medians it does not mind a few: a loss that stays high is told until it is the new normal.
  // Losses that are not finite are neither told nor kept.
  std::optional<LossSpike> See(int64_t step, double loss);

 private:
  const Options options_;
  std::deque<double> window_;
};

}  // namespace trainyard::observe
