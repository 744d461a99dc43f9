#include "trainer/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace trainyard::data {
namespace {

// Whole numbers in the ratio of the weights, where a power of ten turns them into such with a sum that is small enough.
std::optional<std::vector<int64_t>> Exact(const std::vector<double>& weights) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<int64_t> counts;
    for (const double weight : weights) {
      const double whole = std::round(weight * scale);
      // A decimal such as 0.1 is not a binary fraction: its product is whole but for the last bits.
      if (whole < 1 || whole > 1e12 || std::abs(weight * scale - whole) > 1e-9 * whole) break;
      counts.push_back(static_cast<int64_t>(whole));
    }
    if (counts.size() != weights.size()) continue;
    int64_t divisor = 0;
    for (const int64_t count : counts) divisor = std::gcd(divisor, count);
    double sum = 0;
    for (int64_t& count : counts) sum += static_cast<double>(count /= divisor);
    if (sum <= static_cast<double>(Mixture::kMaxPeriod)) return counts;
    return std::nullopt;  // a larger scale makes it no smaller
  }
  return std::nullopt;
}

// Shares as multiples of 1 / kMaxPeriod: each at least one, the rest by the largest remainder, the first of equals.
std::vector<int64_t> Rounded(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;  // of weights relative to the largest, so that huge ones do not overflow
  for (const double weight : weights) sum += weight / largest;
  std::vector<int64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = Mixture::kMaxPeriod;
  const auto spare = static_cast<double>(Mixture::kMaxPeriod - static_cast<int64_t>(weights.size()));
  for (size_t k = 0; k < weights.size(); ++k) {
    const double share = 1 + weights[k] / largest / sum * spare;
    counts.push_back(static_cast<int64_t>(share));
    remainders.emplace_back(share - std::floor(share), k);
    left -= counts.back();
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; left > 0; ++i, --left) ++counts[remainders[i % remainders.size()].second];
  return counts;
}

}  // namespace

Result<Mixture> Mixture::Make(const std::vector<double>& weights) {
  if (weights.empty() || weights.size() > static_cast<size_t>(kMaxPeriod)) {
    return Fail(ErrorCode::kInvalidArgument,
                "a mixture has 1 to " + std::to_string(kMaxPeriod) + " sources, not " + std::to_string(weights.size()));
  }
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight <= 0) {
      return Fail(ErrorCode::kInvalidArgument, "weight " + std::to_string(weight) + " is not a number above 0");
    }
  }
  const auto exact = Exact(weights);
  return Mixture(exact ? *exact : Rounded(weights));
}

Mixture::Mixture(std::vector<int64_t> counts) : counts_(std::move(counts)) {
  const int64_t period = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  // Of each source: sequences so far, and the window of the next one.
  struct Next {
    int64_t taken = 0, begin = 0, end = 0;
  };
  std::vector<Next> sources(counts_.size());
  const auto advance = [&](size_t k, int64_t taken) {
    sources[k] = {taken, taken * period / counts_[k], ((taken + 1) * period + counts_[k] - 1) / counts_[k]};
  };
  for (size_t k = 0; k < counts_.size(); ++k) advance(k, 0);
  order_.reserve(static_cast<size_t>(period));
  for (int64_t n = 0; n < period; ++n) {
    size_t next = 0;
    int64_t earliest = std::numeric_limits<int64_t>::max();
    for (size_t k = 0; k < sources.size(); ++k) {
      if (sources[k].begin <= n && sources[k].end < earliest) {
        next = k;
        earliest = sources[k].end;
      }
    }
    order_.push_back({static_cast<int32_t>(next), static_cast<int32_t>(sources[next].taken)});
    advance(next, sources[next].taken + 1);
  }
}

MixturePlace Mixture::At(int64_t cursor) const {
  const Slot& slot = order_[static_cast<size_t>(cursor % period())];
  return {slot.source, cursor / period() * counts_[static_cast<size_t>(slot.source)] + slot.before};
}

}  // namespace trainyard::data
