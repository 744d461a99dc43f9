// Where the time of a step goes. Exactly one activity is on at any time; switching books the time since the last switch
// on the activity that ends. Thread-safety: one thread.
#pragma once

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
    spent_[static_cast<int>(current_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    current_ = next;
  }
  // Seconds booked on `activity` since it was last taken; the one that is on counts up to its last switch.
  double Take(Activity activity) {
    double& spent = spent_[static_cast<int>(activity)];
    const double seconds = spent;
    spent = 0;
    return seconds;
  }

 private:
  Activity current_ = Activity::kOther;
  Time since_;
  std::array<double, kActivities> spent_{};
};

}  // namespace trainyard::observe
