// One data file, mapped read-only. What is mapped can vanish: a file that another program cuts short, a disk or a
// server that fails. The kernel then sends SIGBUS at the next touch; with ExplainBusErrors the process ends with one
// line that names the file. Thread-safety: a mapping belongs to one thread at a time; its bytes may be read from any.
#pragma once

#include <cstdint>
#include <string>

#include "operator/base/error.h"

namespace trainyard::data {

class MappedFile {
 public:
  // Errors: kNotFound, kPermissionDenied, kInvalidArgument (empty, no regular file), kUnavailable; all name the path.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;  // nothing
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  MappedFile(const char* data, int64_t bytes, int slot) : data_(data), bytes_(bytes), slot_(slot) {}
  const char* data_ = nullptr;
  int64_t bytes_ = 0;
  int slot_ = -1;  // among the mapped files that the handler knows
};

// A SIGBUS in a mapped file ends the process with `exit_code` and "trainyard-trainer: rank N: data file PATH ..." on
// standard error; any other one as ever. Once per process.
void ExplainBusErrors(int rank, int exit_code);

}  // namespace trainyard::data
