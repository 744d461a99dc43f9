// A file system over the real one that fails on purpose at the k-th call: with an error, or by the death of the
// process, with or without the loss of everything that was not synced. Syncing costs nothing here; it is only kept
// account of. Thread-safety: an object belongs to one thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace trainyard::checkpoint {

enum class Fault {
  kNone,
  kNoSpaceOnce,  // ENOSPC at call k
  kNoSpace,      // ENOSPC from call k on, for every call that needs space; half of a write is done
  kIoErrorOnce,  // EIO at call k
  kDeath,        // the process stops before call k; half of a write is done
  kPowerLoss,    // the same, and files and names that were not synced are gone
};

// Thrown by the call at which the process dies.
struct ProcessDied {};

class FaultyFileSystem : public FileSystem {
 public:
  // k counts from 1; 0 never fails.
  FaultyFileSystem(Fault fault, int64_t k) : fault_(fault), k_(k) {}

  bool fired() const { return fired_; }
  int64_t calls() const { return calls_; }
  // After ProcessDied: throws away what a power loss would.
  void LosePower();

  Result<int> OpenRead(const std::string& path) override;
  Result<int> OpenCreate(const std::string& path) override;
  Status WriteAt(int fd, const void* data, int64_t n, int64_t offset, const std::string& path) override;
  void StartWriteback(int, int64_t, int64_t) override {}
  Result<int64_t> ReadAt(int fd, void* data, int64_t n, int64_t offset, const std::string& path) override;
  Status Sync(int fd, const std::string& path) override;
  Status Close(int fd, const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Status MakeDirectory(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveDirectory(const std::string& path) override;
  Result<std::vector<std::string>> ListDirectory(const std::string& path) override;
  Result<FileStat> Stat(const std::string& path) override;
  Result<int64_t> FreeBytes(const std::string& path) override;
  void DropCache(int) override {}

 private:
  enum class Need { kSpace, kNoSpace };
  // Counts the call; an error or a throw when it is the one.
  Status Enter(Need need, const std::string& path);

  const Fault fault_;
  const int64_t k_;
  int64_t calls_ = 0;
  bool fired_ = false, dead_ = false;
  std::set<std::string> unsynced_files_;
  std::set<std::string> unsynced_names_;  // files and directories whose directory was not synced since they appeared
};

}  // namespace trainyard::checkpoint
