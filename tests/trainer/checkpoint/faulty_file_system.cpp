#include "tests/trainer/checkpoint/faulty_file_system.h"

#include <unistd.h>

#include <filesystem>

namespace trainyard::checkpoint {
namespace {

FileSystem& Real() { return PosixFileSystem(); }

std::string Parent(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

// Renames every entry at or below `from`.
void Move(std::set<std::string>& paths, const std::string& from, const std::string& to) {
  std::set<std::string> moved;
  for (const std::string& path : paths) {
    const bool below = path == from || path.starts_with(from + "/");
    moved.insert(below ? to + path.substr(from.size()) : path);
  }
  paths = std::move(moved);
}

}  // namespace

Status FaultyFileSystem::Enter(Need need, const std::string& path) {
  if (dead_) throw ProcessDied();
  ++calls_;
  if (fault_ == Fault::kNone || k_ == 0) return {};
  const bool now = calls_ == k_;
  const bool after = calls_ >= k_;
  switch (fault_) {
    case Fault::kNoSpaceOnce:
    case Fault::kNoSpace:
      if ((now || (after && fault_ == Fault::kNoSpace)) && need == Need::kSpace) {
        fired_ = true;
        return Fail(ErrorCode::kResourceExhausted, "injected: no space left on device: " + path);
      }
      return {};
    case Fault::kIoErrorOnce:
      if (!now) return {};
      fired_ = true;
      return Fail(ErrorCode::kDataLoss, "injected: input/output error: " + path);
    default:
      if (!now) return {};
      fired_ = dead_ = true;
      throw ProcessDied();
  }
}

void FaultyFileSystem::LosePower() {
  for (const std::string& path : unsynced_files_) {
    std::error_code ignored;  // a file that is gone has nothing to lose
    std::filesystem::resize_file(path, 0, ignored);
  }
  for (auto name = unsynced_names_.rbegin(); name != unsynced_names_.rend(); ++name) {
    std::filesystem::remove_all(*name);
  }
}

Result<int> FaultyFileSystem::OpenRead(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return Fail(s.error());
  return Real().OpenRead(path);
}

Result<int> FaultyFileSystem::OpenCreate(const std::string& path) {
  if (Status s = Enter(Need::kSpace, path); !s) return Fail(s.error());
  Result<int> fd = Real().OpenCreate(path);
  if (fd) {
    unsynced_files_.insert(path);
    unsynced_names_.insert(path);
  }
  return fd;
}

Status FaultyFileSystem::WriteAt(int fd, const void* data, int64_t n, int64_t offset, const std::string& path) {
  unsynced_files_.insert(path);
  // A write that fails or is cut short by death has often done a part.
  const auto half = [&] { return Real().WriteAt(fd, data, n / 2, offset, path); };
  try {
    if (Status s = Enter(Need::kSpace, path); !s) {
      if (Status h = half(); !h) return h;
      return s;
    }
  } catch (const ProcessDied&) {
    if (Status h = half(); !h) return h;
    throw;
  }
  return Real().WriteAt(fd, data, n, offset, path);
}

Result<int64_t> FaultyFileSystem::ReadAt(int fd, void* data, int64_t n, int64_t offset, const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return Fail(s.error());
  return Real().ReadAt(fd, data, n, offset, path);
}

Status FaultyFileSystem::Sync(int, const std::string& path) {
  if (Status s = Enter(Need::kSpace, path); !s) return s;
  unsynced_files_.erase(path);
  return {};
}

// Called by destructors, too, which cannot throw: a process that dies here is stopped by its next call.
Status FaultyFileSystem::Close(int fd, const std::string& path) {
  Status s;
  try {
    s = Enter(Need::kNoSpace, path);
  } catch (const ProcessDied&) {
  }
  Status closed = Real().Close(fd, path);
  return s ? closed : s;
}

Status FaultyFileSystem::SyncDirectory(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return s;
  if (Result<FileStat> stat = Real().Stat(path); !stat) return Fail(stat.error());
  std::erase_if(unsynced_names_, [&](const std::string& name) { return Parent(name) == path; });
  return {};
}

Status FaultyFileSystem::MakeDirectory(const std::string& path) {
  if (Status s = Enter(Need::kSpace, path); !s) return s;
  Status made = Real().MakeDirectory(path);
  if (made) unsynced_names_.insert(path);
  return made;
}

Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  if (Status s = Enter(Need::kSpace, from); !s) return s;
  Status renamed = Real().Rename(from, to);
  if (renamed) {
    Move(unsynced_files_, from, to);
    // A rename that was not synced is kept or lost as a whole; it is kept here, which is the harder case for what is in
    // it.
    unsynced_names_.erase(from);
    Move(unsynced_names_, from, to);
  }
  return renamed;
}

Status FaultyFileSystem::RemoveFile(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return s;
  unsynced_files_.erase(path);
  unsynced_names_.erase(path);
  return Real().RemoveFile(path);
}

Status FaultyFileSystem::RemoveDirectory(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return s;
  unsynced_names_.erase(path);
  return Real().RemoveDirectory(path);
}

Result<std::vector<std::string>> FaultyFileSystem::ListDirectory(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return Fail(s.error());
  return Real().ListDirectory(path);
}

Result<FileStat> FaultyFileSystem::Stat(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return Fail(s.error());
  return Real().Stat(path);
}

Result<int64_t> FaultyFileSystem::FreeBytes(const std::string& path) {
  if (Status s = Enter(Need::kNoSpace, path); !s) return Fail(s.error());
  return Real().FreeBytes(path);
}

}  // namespace trainyard::checkpoint
