// Who looks on while ranks wait for each other: for step times and traces. A group without one pays nothing.
// Thread-safety: the group calls it from the threads that issue calls and wait for them, one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::dist {

struct ObservedCall {
  std::string_view name;  // CallName
  std::string_view label;
  int64_t bytes = 0;  // payload, as Comm counts it
  std::chrono::steady_clock::time_point issued;
};

class CommObserver {
 public:
  virtual ~CommObserver() = default;
  // A Wait for `call` blocked its thread from `begin` to `end`: what communication did not hide behind computing. Not
  // called for a Wait that throws.
  virtual void Waited(const ObservedCall& call, std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) = 0;
};

}  // namespace trainyard::dist
