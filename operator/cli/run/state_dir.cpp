#include "operator/cli/run/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "operator/cli/client.h"

namespace trainyard::cli {
namespace {

std::string ReadPid(int fd) {
  char text[32] = {};
  const ssize_t got = pread(fd, text, sizeof text - 1, 0);
  std::string pid(text, got > 0 ? static_cast<size_t>(got) : 0);
  return pid.substr(0, pid.find('\n'));
}

}  // namespace

Result<StateDir> StateDir::Lock(const std::string& given) {
  std::error_code error;
  const std::string path = std::filesystem::absolute(given, error).lexically_normal().string();
  if (error) return Fail(ErrorCode::kInvalidArgument, "--state-dir " + given + ": " + error.message());
  if (auto made = MakeDirectories(path); !made) return Fail(made.error().Wrap("--state-dir"));
  const std::string lock = path + "/lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Fail(ErrorCode::kPermissionDenied, "--state-dir: cannot open " + lock + ": " + std::strerror(errno));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const std::string pid = ReadPid(fd);
    close(fd);
    return Fail(ErrorCode::kAlreadyExists, "another 'trainyard run'" + (pid.empty() ? "" : " (process " + pid + ")") +
                                               " uses " + path + "; wait for it, or give another --state-dir");
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const std::string reason = std::strerror(errno);
    close(fd);
    return Fail(ErrorCode::kResourceExhausted, "--state-dir: cannot write " + lock + ": " + reason);
  }
  // A run that was killed left its own behind.
  std::filesystem::remove(path + "/" + kEndpointFile, error);
  return StateDir(path, fd);
}

StateDir::StateDir(StateDir&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

StateDir::~StateDir() {
  if (lock_fd_ < 0) return;
  std::error_code ignored;  // nothing can be done about it, and the next run removes it
  std::filesystem::remove(path_ + "/" + kEndpointFile, ignored);
  close(lock_fd_);
}

Status StateDir::WriteEndpoint(const std::string& url) {
  const nlohmann::json endpoint = {{"url", url}, {"pid", getpid()}};
  return WriteFileAtomically(path_ + "/" + kEndpointFile, endpoint.dump() + "\n");
}

}  // namespace trainyard::cli
