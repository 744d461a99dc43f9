// A file that grows by whole records: one write(2) each, past all buffers, so that a record is in the kernel when
// Append returns and survives the process. A record that does not fit (a full disk) leaves nothing behind, so that
// those after it can be read. Thread-safety: one thread; the only writer of its file.
#pragma once

#include <string>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard::observe {

class AppendFile {
 public:
  // `what` is for messages: "step log". Makes the file where it is missing. Error: kUnavailable names the path.
  static Result<AppendFile> Open(const std::string& path, const std::string& what);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  // Error: kUnavailable names the path; nothing of `record` is in the file then.
  Status Append(std::string_view record);
  // True when the last byte of the file is `byte`, or there is none. Error: kUnavailable.
  Result<bool> EndsWith(char byte) const;
  const std::string& path() const { return path_; }

 private:
  AppendFile(int fd, std::string path, std::string what) : fd_(fd), path_(std::move(path)), what_(std::move(what)) {}
  Error Failed(const std::string& doing, int error) const;
  int fd_ = -1;
  std::string path_, what_;
};

}  // namespace trainyard::observe
