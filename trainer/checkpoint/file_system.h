// The few file-system calls that checkpoints make, behind an interface so that tests can let the k-th one fail or the
// process die there. Thread-safety: PosixFileSystem may be used from any thread; a descriptor belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::checkpoint {

enum class FileKind { kFile, kDirectory, kSymlink, kOther };

struct FileStat {
  FileKind kind = FileKind::kOther;
  int64_t bytes = 0;
  int64_t modified_ms = 0;  // milliseconds since 1970, UTC
};

// Every error names the call and the path. Codes: ENOENT kNotFound; EEXIST and ENOTEMPTY kAlreadyExists; ENOSPC and
// EDQUOT kResourceExhausted; EACCES, EPERM and EROFS kPermissionDenied; EIO kDataLoss; ENOTDIR kFailedPrecondition;
// ENAMETOOLONG kInvalidArgument; anything else kUnavailable.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<int> OpenRead(const std::string& path) = 0;
  // Creates a file that must not exist, for writing.
  virtual Result<int> OpenCreate(const std::string& path) = 0;
  // Writes all n bytes at `offset`. `path` is for the error message.
  virtual Status WriteAt(int fd, const void* data, int64_t n, int64_t offset, const std::string& path) = 0;
  // Asks the system to begin writing these bytes to the disk; a hint, which lasts until Sync.
  virtual void StartWriteback(int fd, int64_t n, int64_t offset) = 0;
  // Reads up to n bytes at `offset`; fewer only at the end of the file. Returns the count.
  virtual Result<int64_t> ReadAt(int fd, void* data, int64_t n, int64_t offset, const std::string& path) = 0;
  virtual Status Sync(int fd, const std::string& path) = 0;
  virtual Status Close(int fd, const std::string& path) = 0;
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status MakeDirectory(const std::string& path) = 0;
  // rename(2): atomic; replaces nothing but an empty directory when `from` is a directory.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status RemoveFile(const std::string& path) = 0;
  virtual Status RemoveDirectory(const std::string& path) = 0;
  // Names in the directory without "." and "..", sorted.
  virtual Result<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  // Of the entry itself: a symbolic link is reported, not followed.
  virtual Result<FileStat> Stat(const std::string& path) = 0;
  // Bytes that this user can still write to the file system that holds `path`.
  virtual Result<int64_t> FreeBytes(const std::string& path) = 0;
  // Asks the system to forget what it holds of the file in memory, so that the next read is of the disk; a hint. What
  // has not been synced stays.
  virtual void DropCache(int fd) = 0;
};

// The operating system's files.
FileSystem& PosixFileSystem();

// An open descriptor that is closed when it leaves scope. A writer calls Close() itself, since closing can fail.
class OpenFile {
 public:
  OpenFile(FileSystem& fs, int fd, std::string path) : fs_(&fs), fd_(fd), path_(std::move(path)) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept : fs_(other.fs_), fd_(other.fd_), path_(std::move(other.path_)) {
    other.fd_ = -1;
  }
  OpenFile& operator=(OpenFile&&) = delete;
  OpenFile(const OpenFile&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  Status Close();

 private:
  FileSystem* fs_;
  int fd_;
  std::string path_;
};

// Creates the file, writes the text, syncs and closes. An existing file of that name is removed first.
Status WriteWholeFile(FileSystem& fs, const std::string& path, std::string_view text);
// The whole file. Error: kResourceExhausted beyond `limit` bytes.
Result<std::string> ReadWholeFile(FileSystem& fs, const std::string& path, int64_t limit);
// Makes one directory; one that exists already is fine.
Status EnsureDirectory(FileSystem& fs, const std::string& path);
// Makes the directories above it that are missing.
Status EnsureParents(FileSystem& fs, const std::string& path);
// Removes a file or a directory with all that is in it, without following symbolic links. Nothing there is fine.
Status RemoveTree(FileSystem& fs, const std::string& path);

}  // namespace trainyard::checkpoint
