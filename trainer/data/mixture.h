// Which source comes when in a weighted mixture: a pure function of the global cursor, with no state and no world size,
// so that a resized or resumed job goes on exactly where it stopped. Thread-safety: immutable after Make.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::data {

// A sequence of a mixture: of which source, and how many of that source came before it.
struct MixturePlace {
  int source = 0;
  int64_t position = 0;
};

// Source k has the share s_k = w_k / sum(w) of the sequences. The order repeats every `period()` sequences; within it,
// sequence j of source k has its place in [floor(j / s_k), ceil((j + 1) / s_k)), and of those that may come next the
// one with the earliest end comes: with shares that add up to one every sequence gets a place in its window (earliest
// deadline first; Tijdeman, "The chairman assignment problem", 1980; Baruah et al., "Proportionate progress", 1996).
// So among the first n sequences, for every n, source k has n * s_k of them with an error below 1, and in any window of
// n with an error below 2.
class Mixture {
 public:
  // Weights as they are written. A period of at most this many sequences is exact; where the weights need a longer one,
  // shares are rounded to multiples of 1 / kMaxPeriod, and none to 0.
  static constexpr int64_t kMaxPeriod = 1 << 16;

  // Errors: kInvalidArgument for no weights, more than kMaxPeriod of them, or one that is not a finite number above 0.
  static Result<Mixture> Make(const std::vector<double>& weights);

  // The sequence at `cursor` >= 0.
  MixturePlace At(int64_t cursor) const;
  int64_t period() const { return static_cast<int64_t>(order_.size()); }
  // Sequences of each source in one period: the weights as whole numbers without a common factor.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  struct Slot {
    int32_t source = 0;
    int32_t before = 0;  // sequences of the same source earlier in the period
  };
  explicit Mixture(std::vector<int64_t> counts);

  std::vector<int64_t> counts_;
  std::vector<Slot> order_;
};

}  // namespace trainyard::data
