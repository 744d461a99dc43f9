// One child process with its standard error on a pipe. Linux only. Thread-safety: one thread, the one that spawned it
// (the kernel ties the death signal of a child to the thread that made it).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::launch {

struct Spawned {
  pid_t pid = -1;
  int stderr_fd = -1;  // read end, non-blocking, close-on-exec
};

// Starts `command` (looked up in PATH) with `environment` on top of this process's own, in a process group of its own,
// killed by the kernel when this thread ends, with no signal blocked and no descriptor but 0, 1 and 2.
// Errors: kNotFound or kPermissionDenied when the program cannot be run (names it), kResourceExhausted.
Result<Spawned> Spawn(const std::vector<std::string>& command,
                      const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace trainyard::launch
