// A rank's scratch file for what does not fit in memory: it has no name, so that nothing is left of it however the
// process ends, and all its space is reserved when it is made, so that a full disk shows at the start. Reads and writes
// run in the background, past the page cache where the file system allows that. No LibTorch here.
// Thread-safety: one thread calls Read and Write, any thread Copy; buffers belong to the file until their ticket is
// done. After a write has failed everything fails with its error.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

namespace trainyard::engine {

// The storage failed: one line with rank, file and place.
class OffloadError final : public std::runtime_error {
 public:
  explicit OffloadError(const std::string& what, bool denied = false) : std::runtime_error(what), denied_(denied) {}
  // No file may be made there, which no other try changes: the directory is read-only or another user's.
  bool denied() const { return denied_; }

 private:
  bool denied_;
};

// What the file asks of the system, for tests that let it fail. Results and errno as those of the system calls.
class OffloadCalls {
 public:
  virtual ~OffloadCalls() = default;
  // A file in `directory` without a name: -1 with EOPNOTSUPP, EISDIR, EINVAL or ENOENT where there is no such thing.
  virtual int OpenUnnamed(const char* directory, int flags);
  // 0 or an error number, as posix_fallocate.
  virtual int Reserve(int fd, off_t bytes);
  virtual ssize_t Read(int fd, void* to, size_t bytes, off_t at);
  virtual ssize_t Write(int fd, const void* from, size_t bytes, off_t at);
};

class OffloadFile {
 public:
  static constexpr int64_t kAlignment = 4096;  // of offsets, sizes and buffers, in bytes

  // Done, or the OffloadError that get() throws.
  using Ticket = std::shared_future<void>;

  // `bytes`: a multiple of kAlignment; they read as zeros at first. `calls`: null for the system's; must outlive the
  // file. Throws OffloadError when `directory` is not there, cannot be written or has not so much room.
  OffloadFile(std::string directory, int rank, int64_t bytes, OffloadCalls* calls = nullptr);
  ~OffloadFile();  // waits for what is under way
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  // Starts when `after`, if valid, is done; its error becomes this one's. Reads are in their order, writes in theirs,
  // and both go on at once.
  Ticket Read(int64_t offset, void* to, int64_t bytes, Ticket after);
  Ticket Write(int64_t offset, const void* from, int64_t bytes);

  // Waits for the writes so far, then copies any bytes; need not be aligned.
  void Copy(int64_t offset, void* to, int64_t bytes) const;

  int64_t bytes() const { return bytes_; }
  bool direct() const { return direct_; }  // the page cache is passed by

 private:
  class Worker;
  void Open();
  void Reserve();
  void Probe();
  bool Block(bool write);
  void ThrowIfFailed() const;
  void Transfer(bool write, int64_t offset, char* data, int64_t bytes) const;
  [[noreturn]] void Fail(const std::string& what, int error) const;

  const std::string directory_;
  const int rank_;
  const int64_t bytes_;
  OffloadCalls* const calls_;
  int fd_ = -1;
  bool direct_ = false;
  mutable std::mutex mutex_;
  std::exception_ptr failed_;  // of a write
  std::unique_ptr<Worker> reader_, writer_;
};

}  // namespace trainyard::engine
