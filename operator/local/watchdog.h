// A small process beside ours that outlives us for a moment: when we end, by whatever death, its pipe closes and it
// kills the process groups that it was told of. Thread-safety: all members from any thread.
#pragma once

#include <sys/types.h>

#include <memory>

#include "operator/base/error.h"

namespace trainyard::local {

class Watchdog {
 public:
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<Watchdog>> Start();
  ~Watchdog();  // kills the groups still guarded
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Takes int32 numbers: a group to guard, or minus one to release. Writes of four bytes are atomic.
  int fd() const { return fd_; }
  void Release(pid_t group) const;

 private:
  Watchdog(pid_t pid, int fd) : pid_(pid), fd_(fd) {}
  const pid_t pid_;
  const int fd_;
};

}  // namespace trainyard::local
