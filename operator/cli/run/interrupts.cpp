#include "operator/cli/run/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>

namespace trainyard::cli {
namespace {

// A signal handler reaches globals only.
std::atomic<int> g_count{0};
std::atomic<int> g_event{-1};
struct sigaction g_old_int;
struct sigaction g_old_term;
struct sigaction g_old_hangup;

void OnSignal(int /*number*/) {
  g_count.fetch_add(1);
  const uint64_t one = 1;
  // A full counter wakes the reader as well; there is nobody to tell about other errors.
  [[maybe_unused]] const ssize_t written = write(g_event.load(), &one, sizeof one);
}

}  // namespace

Interrupts::Interrupts() {
  g_count = 0;
  g_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (g_event < 0) std::abort();  // no file descriptor left at program start
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_old_int);
  sigaction(SIGTERM, &action, &g_old_term);
  sigaction(SIGHUP, &action, &g_old_hangup);  // a closed terminal must not cost the work since the last checkpoint
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
  sigaction(SIGHUP, &g_old_hangup, nullptr);
  close(g_event.exchange(-1));
}

int Interrupts::count() const { return g_count.load(); }

void Interrupts::Wait(int seen, Milliseconds timeout) const {
  if (count() > seen) return;
  pollfd event = {g_event.load(), POLLIN, 0};
  if (poll(&event, 1, static_cast<int>(timeout.count())) > 0) {
    uint64_t drained = 0;
    [[maybe_unused]] const ssize_t got = read(event.fd, &drained, sizeof drained);
  }
}

}  // namespace trainyard::cli
