// The real files, each call of which a test can look at or change: it overrides what it needs. Thread-safety: as
// PosixFileSystem.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace trainyard::checkpoint {

class ForwardingFileSystem : public FileSystem {
 public:
  // Before each call but hints.
  virtual void Before() {}

  Result<int> OpenRead(const std::string& p) override { return Real().OpenRead(p); }
  Result<int> OpenCreate(const std::string& p) override { return Real().OpenCreate(p); }
  Status WriteAt(int fd, const void* d, int64_t n, int64_t o, const std::string& p) override {
    return Real().WriteAt(fd, d, n, o, p);
  }
  void StartWriteback(int, int64_t, int64_t) override {}
  Result<int64_t> ReadAt(int fd, void* d, int64_t n, int64_t o, const std::string& p) override {
    return Real().ReadAt(fd, d, n, o, p);
  }
  // Tests need no power loss to be survived.
  Status Sync(int, const std::string&) override { return Real(), Status(); }
  Status Close(int fd, const std::string& p) override { return Real().Close(fd, p); }
  Status SyncDirectory(const std::string& p) override { return Real().SyncDirectory(p); }
  Status MakeDirectory(const std::string& p) override { return Real().MakeDirectory(p); }
  Status Rename(const std::string& a, const std::string& b) override { return Real().Rename(a, b); }
  Status RemoveFile(const std::string& p) override { return Real().RemoveFile(p); }
  Status RemoveDirectory(const std::string& p) override { return Real().RemoveDirectory(p); }
  Result<std::vector<std::string>> ListDirectory(const std::string& p) override { return Real().ListDirectory(p); }
  Result<FileStat> Stat(const std::string& p) override { return Real().Stat(p); }
  Result<int64_t> FreeBytes(const std::string& p) override { return Real().FreeBytes(p); }
  void DropCache(int) override {}

 private:
  FileSystem& Real() {
    Before();
    return PosixFileSystem();
  }
};

}  // namespace trainyard::checkpoint
