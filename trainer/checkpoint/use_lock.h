// Whether somebody uses a directory. A reader of a checkpoint holds a shared advisory lock (flock) on its directory;
// what removes a checkpoint must have it alone. A lock goes with its object, or with the process in whatever way that
// ends. File systems without such locks on directories grant them all (NFS does: there an exclusive lock needs a file
// that is open for writing), and then only the rule that the newest valid checkpoint stays protects a reader.
// Thread-safety: an object belongs to one thread.
#pragma once

#include <optional>
#include <string>

#include "operator/base/error.h"

namespace trainyard::checkpoint {

class UseLock {
 public:
  // For reading. What is not a directory is granted as well: who opens it says better what is wrong.
  // Error: kNotFound while it is being removed.
  static Result<UseLock> ToRead(const std::string& checkpoint);
  // For removing. Nothing while somebody reads it.
  static std::optional<UseLock> ToRemove(const std::string& checkpoint);
  // For running a job whose checkpoint directory `root` is. Nothing while another program does. Between machines, and
  // for a job that comes after another, the fence decides (fence.h).
  static std::optional<UseLock> ToTrain(const std::string& root);
  // For filling a new directory with an export. Nothing while another program does.
  static std::optional<UseLock> ToFill(const std::string& directory);

  UseLock() = default;  // of nothing
  ~UseLock();
  UseLock(UseLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  UseLock& operator=(UseLock&& other) noexcept;
  UseLock(const UseLock&) = delete;

 private:
  static std::optional<UseLock> Alone(const std::string& directory);

  int fd_ = -1;
};

}  // namespace trainyard::checkpoint
