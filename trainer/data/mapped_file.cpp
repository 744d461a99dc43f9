#include "trainer/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace trainyard::data {
namespace {

// Read by a signal handler, so nothing here is ever freed while its slot is in use.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<const char*> begin{nullptr};
  std::atomic<int64_t> bytes{0};
  char path[512] = "";
};
std::array<Slot, 512> slots;  // as many files as a job may name

std::string bus_line_head;
int bus_exit_code = 0;

void Write(const char* text) { [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text, std::strlen(text)); }

void OnBusError(int signal_number, siginfo_t* info, void* /*context*/) {
  const char* at = static_cast<const char*>(info->si_addr);
  for (const Slot& slot : slots) {
    const char* begin = slot.begin.load();
    if (begin == nullptr || at < begin || at >= begin + slot.bytes.load()) continue;
    Write(bus_line_head.c_str());
    Write(slot.path);
    Write(" cannot be read any more: it has become shorter while it was in use, or its disk fails\n");
    _exit(bus_exit_code);
  }
  std::signal(signal_number, SIG_DFL);  // the instruction runs again, and ends the process
}

int TakeSlot(const char* data, int64_t bytes, const std::string& path) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].taken.exchange(true)) continue;
    std::snprintf(slots[i].path, sizeof slots[i].path, "%s", path.c_str());
    slots[i].bytes = bytes;
    slots[i].begin = data;
    return static_cast<int>(i);
  }
  return -1;  // unexplained, then
}

void ReleaseSlot(int slot) {
  if (slot < 0) return;
  slots[static_cast<size_t>(slot)].begin = nullptr;
  slots[static_cast<size_t>(slot)].taken = false;
}

Error Failed(const std::string& path, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound
                         : error == EACCES || error == EPERM ? ErrorCode::kPermissionDenied
                                                             : ErrorCode::kUnavailable;
  return {code, "data file " + path + " cannot be read: " + std::strerror(error)};
}

Result<MappedFile> Refused(const std::string& path, const struct stat& info) {
  if (S_ISDIR(info.st_mode)) return Fail(Failed(path, EISDIR));
  const char* why = S_ISREG(info.st_mode) ? " is empty" : " is not a regular file";
  return Fail(ErrorCode::kInvalidArgument, "data file " + path + why);
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // A pipe without a writer would block here for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Fail(Failed(path, errno));
  struct stat info{};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return Fail(Failed(path, error));
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    close(fd);
    return Refused(path, info);
  }
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return Fail(Failed(path, error));
  const char* begin = static_cast<const char*>(data);
  return MappedFile(begin, info.st_size, TakeSlot(begin, info.st_size, path));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), slot_(std::exchange(other.slot_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_, other.slot_);
  return *this;
}

MappedFile::~MappedFile() {
  ReleaseSlot(slot_);
  if (data_ != nullptr) munmap(const_cast<char*>(data_), static_cast<size_t>(bytes_));
}

void ExplainBusErrors(int rank, int exit_code) {
  bus_line_head = "trainyard-trainer: rank " + std::to_string(rank) + ": data file ";
  bus_exit_code = exit_code;
  struct sigaction action{};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace trainyard::data
