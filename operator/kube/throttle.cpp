#include "operator/kube/throttle.h"

#include <algorithm>

namespace trainyard::kube {

using Seconds = std::chrono::duration<double>;

Throttle::Throttle(double qps, int burst) : qps_(qps), burst_(std::max(1, burst)), tokens_(burst_) {}

Throttle::Time Throttle::Reserve(Time now) {
  if (qps_ <= 0) return now;
  if (filled_ == Time{}) filled_ = now;
  tokens_ = std::min(burst_, tokens_ + std::max(0.0, Seconds(now - filled_).count()) * qps_);
  filled_ = now;
  tokens_ -= 1;
  if (tokens_ >= 0) return now;
  return now + std::chrono::duration_cast<Time::duration>(Seconds(-tokens_ / qps_));
}

Result<Seconds> Throttle::Wait(Time deadline) {
  std::unique_lock lock(mutex_);
  const Time start = std::chrono::steady_clock::now();
  const Time turn = stopped_ ? start : Reserve(start);
  if (turn > deadline) {
    tokens_ += 1;
    return Fail(ErrorCode::kDeadlineExceeded,
                "too many requests of our own are waiting; raise --kube-api-qps and --kube-api-burst");
  }
  // Turns are handed out in the order of the calls, so that nobody is overtaken; each waiter only sleeps until its own.
  wake_.wait_until(lock, turn, [this] { return stopped_; });
  if (stopped_) return Fail(ErrorCode::kUnavailable, "stopped");
  return Seconds(std::max(Time::duration{}, std::chrono::steady_clock::now() - start));
}

void Throttle::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  wake_.notify_all();
}

}  // namespace trainyard::kube
