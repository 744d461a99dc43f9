#include "operator/runtime/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace trainyard::runtime {

Milliseconds RateLimiter::When(const std::string& key, SteadyTime now) {
  const Milliseconds own = options_.per_key.Delay(++failures_[key]);
  if (refilled_ != SteadyTime{}) {
    const double seconds = std::chrono::duration<double>(now - refilled_).count();
    tokens_ = std::min(options_.bucket_burst, tokens_ + std::max(0.0, seconds) * options_.bucket_per_second);
  }
  refilled_ = now;
  tokens_ -= 1;  // may go below zero: each debt waits its turn
  const double debt = tokens_ < 0 ? -tokens_ : 0;
  const Milliseconds shared(static_cast<int64_t>(std::ceil(debt / options_.bucket_per_second * 1000)));
  return std::max(own, shared);
}

int RateLimiter::Failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace trainyard::runtime
