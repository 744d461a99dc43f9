#include "trainer/observe/spike.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainyard::observe {
namespace {

// Of a list that is not empty; of an even number of values the lower of the two in the middle.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<LossSpike> SpikeDetector::See(int64_t step, double loss) {
  if (!std::isfinite(loss)) return std::nullopt;
  std::optional<LossSpike> spike;
  if (window_.size() >= options_.least) {
    const double median = Median({window_.begin(), window_.end()});
    std::vector<double> deviations;
    for (const double value : window_) deviations.push_back(std::abs(value - median));
    const double noise = options_.deviations * 1.4826 * Median(std::move(deviations));
    const double threshold = median + std::max(noise, options_.least_jump * std::abs(median));
    if (loss > threshold) spike = LossSpike{step, loss, median, threshold};
  }
  window_.push_back(loss);
  if (window_.size() > options_.window) window_.pop_front();
  return spike;
}

}  // namespace trainyard::observe
