#include "operator/base/clock.h"

#include <cstdio>
#include <ctime>

namespace trainyard {

TimePoint RealClock::Now() const {
  return std::chrono::time_point_cast<Milliseconds>(std::chrono::system_clock::now());
}

TimePoint FakeClock::Now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

void FakeClock::Advance(Milliseconds by) {
  std::lock_guard lock(mutex_);
  now_ += by;
}

std::string FormatTime(TimePoint time, bool fraction) {
  auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  std::time_t t = std::chrono::system_clock::to_time_t(seconds);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::string out = text;
  if (fraction) {
    std::snprintf(text, sizeof(text), ".%03d", static_cast<int>((time - seconds).count()));
    out += text;
  }
  return out + "Z";
}

Result<TimePoint> ParseTime(const std::string& text) {
  std::tm utc{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  long milliseconds = 0;
  if (rest != nullptr && *rest == '.') {
    ++rest;
    long scale = 100;
    while (*rest >= '0' && *rest <= '9') {
      milliseconds += (*rest - '0') * scale;
      scale /= 10;
      ++rest;
    }
  }
  if (rest == nullptr || std::string(rest) != "Z") {
    return Fail(ErrorCode::kInvalidArgument, "'" + text + "' is not a UTC time such as 2026-01-31T12:00:00Z");
  }
  return TimePoint(std::chrono::seconds(timegm(&utc))) + Milliseconds(milliseconds);
}

std::string FormatDuration(Milliseconds duration) {
  char text[48];
  long long ms = duration.count();
  if (ms < 60'000) {
    std::snprintf(text, sizeof(text), "%.1fs", static_cast<double>(ms) / 1000);
  } else if (ms < 3'600'000) {
    std::snprintf(text, sizeof(text), "%lldm %llds", ms / 60'000, ms / 1000 % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lldh %lldm", ms / 3'600'000, ms / 60'000 % 60);
  }
  return text;
}

}  // namespace trainyard
