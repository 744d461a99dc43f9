// Which token comes next, out of the scores that a model gives. What is drawn is a pure function of the seed, of how
// many tokens were drawn before, and of the scores. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::generate {

struct SamplingOptions {
  double temperature = 0;  // scores are divided by it; 0: always the likeliest token
  int64_t top_k =
      0;             // only so many of the likeliest tokens; 0: all (Fan et al., "Hierarchical story generation", 2018)
  double top_p = 1;  // of these the fewest that have this much of the probability together (Holtzman et al., "The
                     // curious case of neural text degeneration", 2019)
  uint64_t seed = 0;
};

class Sampler {
 public:
  // temperature >= 0, top_k >= 0, 0 < top_p <= 1.
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // `logits`: one natural logarithm of an odds per token of the vocabulary, at least one; minus infinity is never
  // drawn. `position`: how many were drawn before. Of equally likely tokens the one with the lower number goes first.
  // Error: kDataLoss for a score that is not a number or infinite, or where none can be drawn.
  Result<int64_t> Draw(std::span<const float> logits, int64_t position);

 private:
  void KeepLikeliest(std::span<const float> logits);
  void KeepNucleus(std::span<const float> logits);
  int64_t Choose(double uniform) const;

  const SamplingOptions options_;
  // Of the last draw, kept so that no memory is asked for again: tokens that may be drawn, and of each token of the
  // vocabulary its probability, times an unknown.
  std::vector<int32_t> candidates_;
  std::vector<double> odds_;
};

}  // namespace trainyard::generate
