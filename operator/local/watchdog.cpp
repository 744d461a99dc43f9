#include "operator/local/watchdog.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <spdlog/spdlog.h>

namespace trainyard::local {
namespace {

constexpr int kMaxGroups = 16384;
int32_t guarded_groups[kMaxGroups];  // of the watchdog process alone

// A fork of a threaded program: async-signal-safe calls only.
[[noreturn]] void Guard(int fd) {
  setsid();  // a terminal's Ctrl-C is not for it
  prctl(PR_SET_NAME, "trainyard-guard");
  for (int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  if (fd != 3) {
    dup2(fd, 3);
    fd = 3;
  }
  close_range(4, ~0U, 0);
  // Whoever waits for the end of our parent's output must not wait for this process.
  const int null = open("/dev/null", O_RDWR);
  for (int number : {0, 1, 2}) dup2(null, number);
  int count = 0;
  while (true) {
    int32_t message = 0;
    const ssize_t got = read(fd, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;
    if (message > 0 && count < kMaxGroups) guarded_groups[count++] = message;
    for (int i = 0; message < 0 && i < count; ++i) {
      if (guarded_groups[i] == -message) guarded_groups[i--] = guarded_groups[--count];
    }
  }
  for (int i = 0; i < count; ++i) kill(-guarded_groups[i], SIGKILL);
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<Watchdog>> Watchdog::Start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Fail(ErrorCode::kResourceExhausted, std::string("watchdog: pipe: ") + std::strerror(errno));
  }
  const pid_t pid = fork();
  if (pid < 0) {
    const std::string reason = std::strerror(errno);
    close(ends[0]);
    close(ends[1]);
    return Fail(ErrorCode::kResourceExhausted, "watchdog: cannot start a process: " + reason);
  }
  if (pid == 0) Guard(ends[0]);
  close(ends[0]);
  return std::unique_ptr<Watchdog>(new Watchdog(pid, ends[1]));
}

Watchdog::~Watchdog() {
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Watchdog::Release(pid_t group) const {
  const int32_t message = -group;
  if (write(fd_, &message, sizeof message) != sizeof message) {
    spdlog::warn("watchdog: cannot release group {}: {}", group, std::strerror(errno));
  }
}

}  // namespace trainyard::local
