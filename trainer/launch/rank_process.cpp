#include "trainer/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

extern char** environ;

namespace trainyard::launch {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> MergedEnvironment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.first == name; });
    if (!changed) merged.emplace_back(line);
  }
  for (const auto& [name, value] : changes) merged.push_back(name + "=" + value);
  return merged;
}

// Runs between fork and exec in a process that had other threads: async-signal-safe calls only.
[[noreturn]] void BecomeChild(pid_t parent, int stderr_fd, int error_fd, char* const* argv, char* const* envp) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the launcher died before the line above
  for (int signal_number : {SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGHUP}) signal(signal_number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A process group in the background that reads the terminal would be stopped.
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  dup2(stderr_fd, STDERR_FILENO);
  // Sockets of the status server must not live on in ranks. error_fd was made above them all or is kept by the gap.
  if (error_fd > 3) close_range(3, static_cast<unsigned>(error_fd) - 1, 0);
  close_range(static_cast<unsigned>(error_fd) + 1, ~0U, 0);
  execvpe(argv[0], argv, envp);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(error_fd, &error, sizeof error);
  _exit(127);
}

}  // namespace

Result<Spawned> Spawn(const std::vector<std::string>& command,
                      const std::vector<std::pair<std::string, std::string>>& environment) {
  // Everything that allocates comes before fork.
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = MergedEnvironment(environment);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  const auto failed = [&](int error) {
    const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound
                           : error == EACCES                   ? ErrorCode::kPermissionDenied
                                                               : ErrorCode::kResourceExhausted;
    return Fail(code, "cannot start '" + command.front() + "': " + std::strerror(error));
  };
  int stderr_pipe[2];
  int error_pipe[2];  // closed by a successful exec
  if (pipe2(stderr_pipe, O_CLOEXEC) != 0) return failed(errno);
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    const int error = errno;
    close(stderr_pipe[0]);
    close(stderr_pipe[1]);
    return failed(error);
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(parent, stderr_pipe[1], error_pipe[1], argv.data(), envp.data());
  const int fork_error = errno;
  close(stderr_pipe[1]);
  close(error_pipe[1]);
  int exec_error = 0;
  if (pid > 0) {
    setpgid(pid, pid);  // the child does it too; whoever is first, the group exists when we go on
    ssize_t n;
    do n = read(error_pipe[0], &exec_error, sizeof exec_error);
    while (n < 0 && errno == EINTR);
    if (n <= 0) exec_error = 0;
  }
  close(error_pipe[0]);
  if (pid < 0 || exec_error != 0) {
    close(stderr_pipe[0]);
    if (pid > 0) waitpid(pid, nullptr, 0);
    return failed(pid < 0 ? fork_error : exec_error);
  }
  fcntl(stderr_pipe[0], F_SETFL, O_NONBLOCK);
  return Spawned{pid, stderr_pipe[0]};
}

}  // namespace trainyard::launch
