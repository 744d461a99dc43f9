// One local process group: started with its output in a file, killed as a whole, reaped once. Nothing of it outlives
// this program: it dies with the thread that started it, and the watchdog kills what it left behind. Thread-safety:
// none; start, signal and reap from one thread, which must live as long as the processes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::local {

struct ProcessSpec {
  std::filesystem::path program;
  std::vector<std::string> arguments;       // with argument 0
  std::vector<std::string> environment;     // "NAME=value"
  std::filesystem::path working_directory;  // empty: ours
  std::filesystem::path log;                // stdout and stderr are appended
};

struct ExitStatus {
  int exit_code = 0;  // 128 + signal for a killed process, as container runtimes report it
  int signal = 0;
};

class Process {
 public:
  // `watchdog_fd` is told the group before the program starts. Errors: kNotFound, kPermissionDenied (the program cannot
  // be run), kResourceExhausted (no more processes), kInvalidArgument (log or working directory).
  static Result<Process> Start(const ProcessSpec& spec, int watchdog_fd);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // kills and reaps what still runs

  int fd() const { return fd_; }  // becomes readable when the main process has ended
  pid_t group() const { return pid_; }
  // To the main process alone: passing it on is the program's business, as in a container.
  void Terminate() const;
  void KillGroup() const;
  // Waits for the main process, after killing what is left of its group.
  ExitStatus Reap();

 private:
  Process(pid_t pid, int fd) : pid_(pid), fd_(fd) {}
  pid_t pid_ = -1;
  int fd_ = -1;  // pidfd
};

}  // namespace trainyard::local
