// The directory in which one `trainyard run` keeps everything: held by a lock for as long as this object lives, so that
// two runs never share pods and checkpoints. Thread-safety: one thread.
#pragma once

#include <string>

#include "operator/base/error.h"

namespace trainyard::cli {

class StateDir {
 public:
  // Makes the directory (absolute afterwards) and locks it. Errors: kAlreadyExists when another run holds it, naming
  // its process; kPermissionDenied or kUnavailable when it cannot be made.
  static Result<StateDir> Lock(const std::string& path);
  // Removes the endpoint file and gives the lock back.
  ~StateDir();
  StateDir(StateDir&& other) noexcept;
  StateDir& operator=(StateDir&&) = delete;
  StateDir(const StateDir&) = delete;

  const std::string& path() const { return path_; }
  // Tells `trainyard get` and `resize` where to ask.
  Status WriteEndpoint(const std::string& url);

 private:
  StateDir(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace trainyard::cli
