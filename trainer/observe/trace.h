// A timeline of a few steps, in the form that chrome://tracing and ui.perfetto.dev read (Trace Event Format, JSON).
// Off, it costs a test of one flag per span. Thread-safety: any thread may add spans.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::observe {

class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `process` is the number under which the rank appears.
  explicit Trace(int process) : process_(process) {}

  bool on() const { return on_.load(std::memory_order_relaxed); }
  void Start() { on_.store(true, std::memory_order_relaxed); }
  // Something that the training thread did. Spans of it nest. Nothing while off.
  void Span(std::string name, const char* category, Time begin, Time end, int64_t bytes = 0);
  // A collective from its issue to the end of the wait for it: these overlap each other and the spans.
  void Collective(std::string name, Time begin, Time end, int64_t bytes);

  // Turns it off and gives what was recorded as JSON. Times are microseconds since the epoch, so that the files of the
  // ranks of one machine (or of machines with good clocks) lie on one line. `wall` and `steady` are one moment in both
  // clocks.
  std::string Finish(std::chrono::system_clock::time_point wall, Time steady);

 private:
  struct Event {
    std::string name;
    const char* category;
    Time begin, end;
    int64_t bytes;
    bool overlaps;
  };
  void Add(Event event);

  const int process_;
  std::atomic<bool> on_{false};
  std::mutex mutex_;  // guards events_
  std::vector<Event> events_;
};

}  // namespace trainyard::observe
