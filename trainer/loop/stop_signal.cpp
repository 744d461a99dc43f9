#include "trainer/loop/stop_signal.h"

#include <csignal>

namespace trainyard::loop {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void OnSignal(int signal_number) {
  stop_requested = 1;
  if (signal_number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void WatchStopSignals() {
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGINT, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);  // a vanished reader of our log is no reason to stop
}

bool StopRequested() { return stop_requested != 0; }

}  // namespace trainyard::loop
