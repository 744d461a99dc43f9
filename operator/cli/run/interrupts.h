// Counts SIGINT, SIGTERM and SIGHUP from construction to destruction, in place of their default effect. One object at a
// time. Thread-safety: all members may be called from any thread.
#pragma once

#include "operator/base/clock.h"

namespace trainyard::cli {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // How many have arrived.
  int count() const;
  // Waits until more than `seen` have arrived, at most `timeout`.
  void Wait(int seen, Milliseconds timeout) const;
};

}  // namespace trainyard::cli
