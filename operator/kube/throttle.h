// How many requests per second we send: a token bucket whose waiters are served in the order in which they came.
// Thread-safety: all members from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "operator/base/error.h"

namespace trainyard::kube {

class Throttle {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `qps` <= 0: never waits. `burst` is at least one.
  Throttle(double qps, int burst);

  // Waits for this caller's turn and returns how long that took. Errors: kDeadlineExceeded when the turn comes after
  // `deadline`, at once; kUnavailable after Stop().
  Result<std::chrono::duration<double>> Wait(Time deadline);
  // Wakes all waiters, for good.
  void Stop();

  // Takes a token: when its turn is. Pure but for its own state; `now` never goes back.
  Time Reserve(Time now);

 private:
  const double qps_;
  const double burst_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable wake_;
  double tokens_;  // below zero: as many callers have been told to wait
  Time filled_{};
  bool stopped_ = false;
};

}  // namespace trainyard::kube
