#include "trainer/checkpoint/use_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace trainyard::checkpoint {
namespace {

int OpenDirectory(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// False only when another holds it: a file system that knows no locks grants them all.
bool TryLock(int fd, int how) { return fd < 0 || ::flock(fd, how | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

}  // namespace

Result<UseLock> UseLock::ToRead(const std::string& checkpoint) {
  UseLock lock;
  lock.fd_ = OpenDirectory(checkpoint);
  if (!TryLock(lock.fd_, LOCK_SH)) return Fail(ErrorCode::kNotFound, "checkpoint " + checkpoint + " is being removed");
  return lock;
}

std::optional<UseLock> UseLock::Alone(const std::string& directory) {
  UseLock lock;
  lock.fd_ = OpenDirectory(directory);
  if (!TryLock(lock.fd_, LOCK_EX)) return std::nullopt;
  return lock;
}

std::optional<UseLock> UseLock::ToRemove(const std::string& checkpoint) { return Alone(checkpoint); }

std::optional<UseLock> UseLock::ToTrain(const std::string& root) { return Alone(root); }

std::optional<UseLock> UseLock::ToFill(const std::string& directory) { return Alone(directory); }

UseLock::~UseLock() {
  if (fd_ >= 0) ::close(fd_);  // opened for reading: closing loses nothing
}

UseLock& UseLock::operator=(UseLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace trainyard::checkpoint
