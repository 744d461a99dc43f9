#include "trainer/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trainyard::checkpoint {
namespace {

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return ErrorCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermissionDenied;
    case EIO:
      return ErrorCode::kDataLoss;
    case ENOTDIR:
      return ErrorCode::kFailedPrecondition;
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kUnavailable;
  }
}

tl::unexpected<Error> FailErrno(const char* call, const std::string& path) {
  const int error = errno;
  return Fail(CodeOf(error), std::string(call) + " " + path + ": " + std::strerror(error));
}

class Posix : public FileSystem {
 public:
  Result<int> OpenRead(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return FailErrno("open", path);
    return fd;
  }

  Result<int> OpenCreate(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return FailErrno("create", path);
    return fd;
  }

  Status WriteAt(int fd, const void* data, int64_t n, int64_t offset, const std::string& path) override {
    const char* at = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t done = ::pwrite(fd, at, static_cast<size_t>(n), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return FailErrno("write", path);
      at += done;
      offset += done;
      n -= done;
    }
    return {};
  }

  void StartWriteback(int fd, int64_t n, int64_t offset) override {
    // Not every file system knows it; Sync is what counts.
    ::sync_file_range(fd, offset, n, SYNC_FILE_RANGE_WRITE);
  }

  Result<int64_t> ReadAt(int fd, void* data, int64_t n, int64_t offset, const std::string& path) override {
    char* at = static_cast<char*>(data);
    int64_t total = 0;
    while (total < n) {
      const ssize_t done = ::pread(fd, at + total, static_cast<size_t>(n - total), offset + total);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return FailErrno("read", path);
      if (done == 0) break;
      total += done;
    }
    return total;
  }

  Status Sync(int fd, const std::string& path) override {
    if (::fsync(fd) != 0) return FailErrno("fsync", path);
    return {};
  }

  Status Close(int fd, const std::string& path) override {
    if (::close(fd) != 0 && errno != EINTR) return FailErrno("close", path);
    return {};
  }

  Status SyncDirectory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FailErrno("open", path);
    Status status;
    // Some network file systems have no fsync for directories (EINVAL): their creates and renames are synchronous.
    if (::fsync(fd) != 0 && errno != EINVAL) status = FailErrno("fsync", path);
    ::close(fd);
    return status;
  }

  Status MakeDirectory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) return FailErrno("mkdir", path);
    return {};
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return FailErrno("rename", from + " -> " + to);
    return {};
  }

  Status RemoveFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return FailErrno("unlink", path);
    return {};
  }

  Status RemoveDirectory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return FailErrno("rmdir", path);
    return {};
  }

  Result<std::vector<std::string>> ListDirectory(const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return FailErrno("open directory", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) {
      errno = error;
      return FailErrno("list", path);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<FileStat> Stat(const std::string& path) override {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return FailErrno("stat", path);
    FileStat out;
    out.kind = S_ISREG(status.st_mode)   ? FileKind::kFile
               : S_ISDIR(status.st_mode) ? FileKind::kDirectory
               : S_ISLNK(status.st_mode) ? FileKind::kSymlink
                                         : FileKind::kOther;
    out.bytes = status.st_size;
    out.modified_ms = int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000;
    return out;
  }

  Result<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs status{};
    if (::statvfs(path.c_str(), &status) != 0) return FailErrno("statvfs", path);
    return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  }

  void DropCache(int fd) override {
    // What a file system without it has in memory is read from there.
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix fs;
  return fs;
}

// Only error paths and readers come here with an open descriptor: what closing says can change nothing for them.
OpenFile::~OpenFile() {
  Close().map_error([](const Error&) {});
}

Status OpenFile::Close() {
  if (fd_ < 0) return {};
  const int fd = fd_;
  fd_ = -1;
  return fs_->Close(fd, path_);
}

Status WriteWholeFile(FileSystem& fs, const std::string& path, std::string_view text) {
  if (Status removed = fs.RemoveFile(path); !removed && removed.error().code != ErrorCode::kNotFound) return removed;
  Result<int> fd = fs.OpenCreate(path);
  if (!fd) return Fail(fd.error());
  OpenFile file(fs, *fd, path);
  if (Status s = fs.WriteAt(*fd, text.data(), static_cast<int64_t>(text.size()), 0, path); !s) return s;
  if (Status s = fs.Sync(*fd, path); !s) return s;
  return file.Close();
}

Result<std::string> ReadWholeFile(FileSystem& fs, const std::string& path, int64_t limit) {
  Result<FileStat> stat = fs.Stat(path);
  if (!stat) return Fail(stat.error());
  if (stat->kind != FileKind::kFile) return Fail(ErrorCode::kFailedPrecondition, path + " is not a regular file");
  if (stat->bytes > limit) {
    return Fail(ErrorCode::kResourceExhausted,
                path + " has " + std::to_string(stat->bytes) + " bytes, more than " + std::to_string(limit));
  }
  Result<int> fd = fs.OpenRead(path);
  if (!fd) return Fail(fd.error());
  OpenFile file(fs, *fd, path);
  std::string text(static_cast<size_t>(stat->bytes), '\0');
  Result<int64_t> got = fs.ReadAt(*fd, text.data(), stat->bytes, 0, path);
  if (!got) return Fail(got.error());
  text.resize(static_cast<size_t>(*got));
  return text;
}

Status EnsureDirectory(FileSystem& fs, const std::string& path) {
  Status made = fs.MakeDirectory(path);
  if (made || made.error().code != ErrorCode::kAlreadyExists) return made;
  return {};
}

Status EnsureParents(FileSystem& fs, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (fs.Stat(parent)) continue;  // a parent that exists may be one in which we may not create
    if (Status s = EnsureDirectory(fs, parent); !s) return s;
  }
  return {};
}

Status RemoveTree(FileSystem& fs, const std::string& path) {
  const auto gone = [](const Error& error) { return error.code == ErrorCode::kNotFound; };
  Result<FileStat> stat = fs.Stat(path);
  if (!stat) return gone(stat.error()) ? Status() : Status(Fail(stat.error()));
  if (stat->kind != FileKind::kDirectory) {
    Status removed = fs.RemoveFile(path);
    return !removed && gone(removed.error()) ? Status() : removed;
  }
  Result<std::vector<std::string>> names = fs.ListDirectory(path);
  if (!names) return gone(names.error()) ? Status() : Status(Fail(names.error()));
  for (const std::string& name : *names) {
    if (Status s = RemoveTree(fs, path + "/" + name); !s) return s;
  }
  Status removed = fs.RemoveDirectory(path);
  return !removed && gone(removed.error()) ? Status() : removed;
}

}  // namespace trainyard::checkpoint
