// Lets a line of the log pass once per state and not once per retry: the same message of the same thing again is held
// back until something else was said, or it was quiet for a while, or a long time has passed.
// Thread-safety: all members from any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "operator/base/clock.h"
#include "operator/runtime/rate_limit.h"

namespace trainyard::runtime {

class LogGate {
 public:
  explicit LogGate(std::function<SteadyTime()> now = [] { return std::chrono::steady_clock::now(); })
      : now_(std::move(now)) {}

  // True: say it. `thing` is one of a few.
  bool Passes(const std::string& thing, const std::string& message) {
    std::lock_guard lock(mutex_);
    const SteadyTime now = now_();
    State& state = states_[thing];
    const bool again = state.message == message && now < state.heard + kQuiet && now < state.said + kReminder;
    state.heard = now;
    if (again) return false;
    state.message = message;
    state.said = now;
    return true;
  }
  // The trouble is over: the next message is news, whatever it is. True: there was one.
  bool Clear(const std::string& thing) {
    std::lock_guard lock(mutex_);
    return states_.erase(thing) > 0;
  }

 private:
  static constexpr Milliseconds kQuiet{90'000};      // retries come at least this often
  static constexpr Milliseconds kReminder{600'000};  // trouble that lasts is told again
  struct State {
    std::string message;
    SteadyTime heard{};  // last time
    SteadyTime said{};
  };
  const std::function<SteadyTime()> now_;
  std::mutex mutex_;  // guards states_
  std::map<std::string, State> states_;
};

}  // namespace trainyard::runtime
