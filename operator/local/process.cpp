#include "operator/local/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgot to declare it for C++
}

namespace trainyard::local {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* working_directory;  // null: ours
  int log_fd;
  int null_fd;
  int error_fd;  // receives errno if the program cannot be started; closed by a start
  int watchdog_fd;
  pid_t parent;
};

// Between fork and exec of a threaded program: async-signal-safe calls only.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  setpgid(0, 0);
  const int32_t group = getpid();
  bool good = write(plan.watchdog_fd, &group, sizeof group) == sizeof group;
  good = good && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (getppid() != plan.parent) _exit(127);  // died between fork and prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) signal(number, SIG_DFL);
  good = good && dup2(plan.null_fd, STDIN_FILENO) >= 0 && dup2(plan.log_fd, STDOUT_FILENO) >= 0 &&
         dup2(plan.log_fd, STDERR_FILENO) >= 0;
  good = good && (!plan.working_directory || chdir(plan.working_directory) == 0);
  if (good) {
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    execve(plan.program, plan.arguments, plan.environment);
  }
  const int error = errno;
  const ssize_t written = write(plan.error_fd, &error, sizeof error);
  _exit(written == sizeof error ? 127 : 126);
}

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case ENOEXEC:
      return ErrorCode::kPermissionDenied;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kInvalidArgument;
  }
}

// Closes on scope exit.
struct Fd {
  int number = -1;
  ~Fd() {
    if (number >= 0) close(number);
  }
};

}  // namespace

Result<Process> Process::Start(const ProcessSpec& spec, int watchdog_fd) {
  Fd log{open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  if (log.number < 0) {
    return Fail(ErrorCode::kInvalidArgument, "cannot open log " + spec.log.string() + ": " + std::strerror(errno));
  }
  Fd null{open("/dev/null", O_RDONLY | O_CLOEXEC)};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Fail(CodeOf(errno), std::string("pipe: ") + std::strerror(errno));
  Fd error_read{ends[0]};
  Fd error_write{ends[1]};
  const std::vector<char*> arguments = Pointers(spec.arguments);
  const std::vector<char*> environment = Pointers(spec.environment);
  const std::string directory = spec.working_directory.string();
  const ChildPlan plan{spec.program.c_str(),
                       arguments.data(),
                       environment.data(),
                       directory.empty() ? nullptr : directory.c_str(),
                       log.number,
                       null.number,
                       error_write.number,
                       watchdog_fd,
                       getpid()};
  const pid_t pid = fork();
  if (pid < 0) return Fail(CodeOf(errno), std::string("cannot start a process: ") + std::strerror(errno));
  if (pid == 0) RunChild(plan);
  setpgid(pid, pid);  // the child does it too; whoever comes first
  close(std::exchange(error_write.number, -1));
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(error_read.number, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == 0) {
    const int fd = pidfd_open(pid, 0);
    if (fd >= 0) return Process(pid, fd);
    error = errno;
    kill(-pid, SIGKILL);
  }
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return Fail(CodeOf(error), "cannot run " + spec.program.string() + ": " + std::strerror(error));
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(fd_, other.fd_);
  return *this;
}

Process::~Process() {
  if (pid_ > 0) Reap();
}

void Process::Terminate() const { kill(pid_, SIGTERM); }

void Process::KillGroup() const { kill(-pid_, SIGKILL); }

ExitStatus Process::Reap() {
  // Until it is reaped its number cannot be given to another process.
  KillGroup();
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  close(fd_);
  pid_ = fd_ = -1;
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace trainyard::local
