// Where the time of a step goes. Exactly one activity is on at any time; switching books the time since the last switch
// on the activity that ends, without what the thread waited for peers meanwhile: that is communication.
// Thread-safety: one thread at a time. Backward may report its waits from autograd's thread while the clock's own is
// blocked in it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

namespace trainyard::observe {

enum class Activity { kData, kCompute, kCommunication, kOptimizer, kCheckpoint, kEvaluation, kOther };
inline constexpr int kActivities = 7;

class PhaseClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit PhaseClock(Time now) : since_(now) {}

  void Switch(Activity next, Time now) {
    const double passed = std::chrono::duration<double>(now - since_).count();
    // Waits for peers are what communication costs a step; during a save or an evaluation they are part of it.
    const bool step = current_ == Activity::kCompute || current_ == Activity::kOptimizer;
    const double waited = step ? std::min(waited_, passed) : 0;
    Spent(current_) += passed - waited;
    Spent(Activity::kCommunication) += waited;
    waited_ = 0;
    since_ = now;
    current_ = next;
  }
  // The current activity waited this long for peers.
  void Waited(double seconds) { waited_ += seconds; }
  // Seconds booked on `activity` since it was last taken; the one that is on counts up to its last switch.
  double Take(Activity activity) {
    double& spent = Spent(activity);
    const double seconds = spent;
    spent = 0;
    return seconds;
  }

 private:
  double& Spent(Activity activity) { return spent_[static_cast<size_t>(activity)]; }

  Activity current_ = Activity::kOther;
  Time since_;
  double waited_ = 0;
  std::array<double, kActivities> spent_{};
};

}  // namespace trainyard::observe
