// Time, injected: no room asks the operating system for the time itself.
// Thread-safety: RealClock and FakeClock may be used from any thread.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "operator/base/error.h"

namespace trainyard {

using Milliseconds = std::chrono::milliseconds;
// UTC wall time with millisecond resolution.
using TimePoint = std::chrono::time_point<std::chrono::system_clock, Milliseconds>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class RealClock : public Clock {
 public:
  TimePoint Now() const override;
};

// A clock that moves only when told to; for tests.
class FakeClock : public Clock {
 public:
  explicit FakeClock(TimePoint start) : now_(start) {}
  TimePoint Now() const override;
  void Advance(Milliseconds by);

 private:
  mutable std::mutex mutex_;  // guards now_
  TimePoint now_;
};

// RFC 3339 in UTC as Kubernetes writes it: "2026-01-31T12:00:00Z"; with milliseconds when `fraction`.
std::string FormatTime(TimePoint time, bool fraction = false);
// Parses what FormatTime writes. Error: kInvalidArgument.
Result<TimePoint> ParseTime(const std::string& text);
// "1h 2m", "3m 20s", "4.2s", for people.
std::string FormatDuration(Milliseconds duration);

}  // namespace trainyard
