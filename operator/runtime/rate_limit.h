// How long a failed key waits: the larger of its own exponential back-off and a token bucket shared by all keys, with
// the numbers that Kubernetes controllers use. Pure: time is an argument. Thread-safety: none; the work queue holds its
// lock.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "operator/base/backoff.h"

namespace trainyard::runtime {

using SteadyTime = std::chrono::steady_clock::time_point;

struct RateLimitOptions {
  Backoff per_key{Milliseconds(5), Milliseconds(1'000'000)};
  double bucket_per_second = 10;
  double bucket_burst = 100;
};

class RateLimiter {
 public:
  explicit RateLimiter(RateLimitOptions options) : options_(options), tokens_(options.bucket_burst) {}
  // Counts one more failure of `key` and takes a token.
  Milliseconds When(const std::string& key, SteadyTime now);
  void Forget(const std::string& key) { failures_.erase(key); }
  int Failures(const std::string& key) const;

 private:
  const RateLimitOptions options_;
  double tokens_;
  SteadyTime refilled_{};
  std::map<std::string, int> failures_;
};

}  // namespace trainyard::runtime
