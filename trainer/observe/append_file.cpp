#include "trainer/observe/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace trainyard::observe {

Result<AppendFile> AppendFile::Open(const std::string& path, const std::string& what) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  AppendFile file(fd, path, what);
  if (fd < 0) return Fail(file.Failed("cannot open", errno));
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), what_(std::move(other.what_)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(what_, other.what_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

Error AppendFile::Failed(const std::string& doing, int error) const {
  return {ErrorCode::kUnavailable, doing + " the " + what_ + " " + path_ + ": " + std::strerror(error)};
}

Status AppendFile::Append(std::string_view record) {
  const off_t before = lseek(fd_, 0, SEEK_END);
  if (before < 0) return Fail(Failed("cannot append to", errno));
  const ssize_t n = write(fd_, record.data(), record.size());
  if (n == static_cast<ssize_t>(record.size())) return {};
  const int error = n < 0 ? errno : ENOSPC;  // the kernel tells why with the next call only
  if (n > 0 && ftruncate(fd_, before) != 0) return Fail(Failed("cannot take half a record back from", errno));
  return Fail(Failed("cannot append to", error));
}

Result<bool> AppendFile::EndsWith(char byte) const {
  const off_t size = lseek(fd_, 0, SEEK_END);
  if (size == 0) return true;
  char last = 0;
  if (size < 0 || pread(fd_, &last, 1, size - 1) != 1) return Fail(Failed("cannot read", errno));
  return last == byte;
}

}  // namespace trainyard::observe
