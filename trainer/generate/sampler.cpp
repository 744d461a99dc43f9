#include "trainer/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "trainer/engine/init.h"

namespace trainyard::generate {
namespace {

constexpr size_t kStretch = 256;  // candidates that are put in order at a time

// In [0, 1), of 53 bits.
double Uniform(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const auto random = engine::Philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                                     {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{random[0]} << 32 | random[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The first of the largest. Error: as Draw.
Result<size_t> Likeliest(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (std::isinf(logits[i]) && logits[i] > 0)) {
      return Fail(ErrorCode::kDataLoss, "the model's score of token " + std::to_string(i) + " is " +
                                            (std::isnan(logits[i]) ? "not a number" : "infinite") +
                                            ": its weights are damaged, or too large for this precision");
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (std::isinf(logits[best])) return Fail(ErrorCode::kDataLoss, "the model's scores are all minus infinity");
  return best;
}

auto ByScore(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
}

}  // namespace

Result<int64_t> Sampler::Draw(std::span<const float> logits, int64_t position) {
  const Result<size_t> best = Likeliest(logits);
  if (!best) return Fail(best.error());
  if (options_.temperature == 0 || options_.top_k == 1) return static_cast<int64_t>(*best);
  odds_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    odds_[i] = std::exp((static_cast<double>(logits[i]) - logits[*best]) / options_.temperature);
  }
  candidates_.resize(logits.size());
  std::iota(candidates_.begin(), candidates_.end(), 0);
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < logits.size()) KeepLikeliest(logits);
  if (options_.top_p < 1) KeepNucleus(logits);
  return Choose(Uniform(options_.seed, position));
}

void Sampler::KeepLikeliest(std::span<const float> logits) {
  const auto end = candidates_.begin() + options_.top_k;
  std::nth_element(candidates_.begin(), end - 1, candidates_.end(), ByScore(logits));
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end());  // an order that does not depend on the library
}

// Puts the likeliest in order, stretch by stretch, until they have enough together: mostly one stretch of many.
void Sampler::KeepNucleus(std::span<const float> logits) {
  double total = 0;
  for (const int32_t i : candidates_) total += odds_[i];
  double sum = 0;
  for (size_t begin = 0, end = 0; begin < candidates_.size(); begin = end) {
    end = std::min(candidates_.size(), 4 * begin + kStretch);
    std::partial_sort(candidates_.begin() + begin, candidates_.begin() + end, candidates_.end(), ByScore(logits));
    for (size_t i = begin; i < end; ++i) {
      sum += odds_[candidates_[i]];
      if (sum < options_.top_p * total) continue;
      candidates_.resize(i + 1);
      return;
    }
  }
}

int64_t Sampler::Choose(double uniform) const {
  double total = 0;
  for (const int32_t i : candidates_) total += odds_[i];
  double left = uniform * total;
  int32_t last = candidates_.front();
  for (const int32_t i : candidates_) {
    if (odds_[i] == 0) continue;
    last = i;
    left -= odds_[i];
    if (left < 0) break;
  }
  return last;  // rounding may leave a little at the end
}

}  // namespace trainyard::generate
