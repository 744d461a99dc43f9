#include "trainer/engine/offload_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace trainyard::engine {
namespace {

// Large enough that a device is busy with one, and a multiple of every block size.
constexpr int64_t kRequestBytes = 32 << 20;
constexpr int64_t kCopyBytes = 4 << 20;

OffloadCalls& System() {
  static OffloadCalls calls;
  return calls;
}

}  // namespace

int OffloadCalls::OpenUnnamed(const char* directory, int flags) {
  return open(directory, flags | O_TMPFILE, S_IRUSR | S_IWUSR);
}
int OffloadCalls::Reserve(int fd, off_t bytes) { return posix_fallocate(fd, 0, bytes); }
ssize_t OffloadCalls::Read(int fd, void* to, size_t bytes, off_t at) { return pread(fd, to, bytes, at); }
ssize_t OffloadCalls::Write(int fd, const void* from, size_t bytes, off_t at) { return pwrite(fd, from, bytes, at); }

// Runs jobs one after another on a thread of its own.
class OffloadFile::Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Ticket Add(std::function<void()> job) {
    std::packaged_task<void()> task(std::move(job));
    Ticket ticket = task.get_future().share();
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(task));
    }
    wake_.notify_one();
    return ticket;
  }
  // Blocks until there is nothing to do.
  void AwaitIdle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::packaged_task<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job();
      lock.lock();
      busy_ = false;
      if (jobs_.empty()) idle_.notify_all();
    }
  }

  std::mutex mutex_;  // guards everything but the thread
  std::condition_variable wake_, idle_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

OffloadFile::OffloadFile(std::string directory, int rank, int64_t bytes, OffloadCalls* calls)
    : directory_(std::move(directory)), rank_(rank), bytes_(bytes), calls_(calls != nullptr ? calls : &System()) {
  Open();
  try {
    Reserve();
    Probe();
    reader_ = std::make_unique<Worker>();
    writer_ = std::make_unique<Worker>();
  } catch (...) {
    close(fd_);
    throw;
  }
}

OffloadFile::~OffloadFile() {
  reader_.reset();  // first: a read may wait for a write
  writer_.reset();
  close(fd_);
}

void OffloadFile::Fail(const std::string& what, int error) const {
  throw OffloadError("offload of rank " + std::to_string(rank_) + " to " + directory_ + ": " + what +
                         (error != 0 ? std::string(": ") + std::strerror(error) : ""),
                     error == EACCES || error == EPERM || error == EROFS);
}

// Without a name from the start where the file system can do that (not on NFS), else it loses it at once.
void OffloadFile::Open() {
  fd_ = calls_->OpenUnnamed(directory_.c_str(), O_RDWR | O_CLOEXEC);
  int error = fd_ < 0 ? errno : 0;
  if (error == EOPNOTSUPP || error == EISDIR || error == EINVAL) {
    std::string name = directory_ + "/.trainyard-offload-XXXXXX";
    fd_ = mkostemp(name.data(), O_CLOEXEC);
    error = fd_ < 0 ? errno : 0;
    if (fd_ >= 0 && unlink(name.c_str()) != 0) {
      error = errno;
      close(fd_);
    }
  }
  if (error != 0) Fail("cannot make a file there, give a volume with a directory that this user may write", error);
}

void OffloadFile::Reserve() {
  if (bytes_ == 0) return;
  const int error = calls_->Reserve(fd_, bytes_);
  if (error == 0) return;
  struct statvfs room{};
  std::string free;
  if (fstatvfs(fd_, &room) == 0) {
    free = " (" + std::to_string(room.f_bavail * room.f_frsize) + " bytes are free)";
  }
  Fail("cannot reserve " + std::to_string(bytes_) + " bytes for master weights and optimizer state" + free +
           ", give the volume more room or use more ranks",
       error);
}

// One aligned block, there and back: file systems that take O_DIRECT may still refuse to use it.
bool OffloadFile::Block(bool write) {
  void* const block = std::aligned_alloc(kAlignment, kAlignment);
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block, 0, kAlignment);
  const ssize_t moved = write ? calls_->Write(fd_, block, kAlignment, 0) : calls_->Read(fd_, block, kAlignment, 0);
  std::free(block);
  return moved == kAlignment;
}

void OffloadFile::Probe() {
  if (bytes_ == 0) return;
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
  direct_ = Block(true) && Block(false);
  if (!direct_ && fcntl(fd_, F_SETFL, flags) != 0) Fail("cannot turn O_DIRECT off", errno);
}

OffloadFile::Ticket OffloadFile::Read(int64_t offset, void* to, int64_t bytes, Ticket after) {
  return reader_->Add([this, offset, to, bytes, after = std::move(after)] {
    if (after.valid()) after.get();
    ThrowIfFailed();
    Transfer(false, offset, static_cast<char*>(to), bytes);
  });
}

OffloadFile::Ticket OffloadFile::Write(int64_t offset, const void* from, int64_t bytes) {
  return writer_->Add([this, offset, from, bytes] {
    ThrowIfFailed();
    try {
      Transfer(true, offset, const_cast<char*>(static_cast<const char*>(from)), bytes);
    } catch (...) {
      std::lock_guard lock(mutex_);
      failed_ = std::current_exception();
      throw;
    }
  });
}

void OffloadFile::ThrowIfFailed() const {
  std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
}

void OffloadFile::Copy(int64_t offset, void* to, int64_t bytes) const {
  writer_->AwaitIdle();
  ThrowIfFailed();
  const std::unique_ptr<char, decltype(&std::free)> block(
      static_cast<char*>(std::aligned_alloc(kAlignment, kCopyBytes)), &std::free);
  if (!block) throw std::bad_alloc();
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const int64_t from = offset / kAlignment * kAlignment, skip = offset - from;
    const int64_t part = std::min(bytes, kCopyBytes - skip);
    Transfer(false, from, block.get(), (skip + part + kAlignment - 1) / kAlignment * kAlignment);
    std::memcpy(out, block.get() + skip, static_cast<size_t>(part));
    out += part;
    offset += part;
    bytes -= part;
  }
}

void OffloadFile::Transfer(bool write, int64_t offset, char* data, int64_t bytes) const {
  const auto at = [&] {
    return std::string(write ? "cannot write " : "cannot read ") + std::to_string(bytes) + " bytes at offset " +
           std::to_string(offset);
  };
  while (bytes > 0) {
    const auto ask = static_cast<size_t>(std::min(bytes, kRequestBytes));
    const ssize_t moved = write ? calls_->Write(fd_, data, ask, offset) : calls_->Read(fd_, data, ask, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) Fail(at(), errno);
    if (moved == 0) Fail(at() + ": the file ends there, although it was reserved", 0);
    data += moved;
    offset += moved;
    bytes -= moved;
  }
}

}  // namespace trainyard::engine
