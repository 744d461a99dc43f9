#include "trainer/loop/stop_signal.h"

#include <unistd.h>

#include <csignal>

#include "trainer/contract/contract.h"

namespace trainyard::loop {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
volatile std::sig_atomic_t deferred = 0;

void OnSignal(int signal_number) {
  if (deferred == 0) _exit(contract::kExitStopped);
  stop_requested = 1;
  if (signal_number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void WatchStopSignals() {
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGINT, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);  // a vanished reader of our log is no reason to stop
}

void DeferStopSignals() { deferred = 1; }

bool StopRequested() { return stop_requested != 0; }

}  // namespace trainyard::loop
