// The directory that an export fills. Thread-safety: an object belongs to one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {

// What was written goes again unless Finish is reached, so that no half an export is taken for one.
class ExportDirectory {
 public:
  // Makes `path` (its parent must exist), or takes an empty one. Error: kAlreadyExists when it is not empty or another
  // program fills it, which says where to be `doing` it; of the file system.
  static Result<ExportDirectory> Open(const std::string& path, FileSystem& fs, const std::string& doing = "export");
  ExportDirectory(ExportDirectory&& other) noexcept;
  ExportDirectory& operator=(ExportDirectory&&) = delete;
  ~ExportDirectory();

  // Path of a file that is about to be written.
  std::string NewFile(const std::string& name);
  Status WriteText(const std::string& name, std::string_view text);
  // Syncs the directory and keeps the files.
  Status Finish();
  const std::vector<std::string>& files() const { return files_; }

 private:
  ExportDirectory(FileSystem& fs, std::string path, bool made, UseLock lock)
      : fs_(&fs), lock_(std::move(lock)), path_(std::move(path)), made_(made) {}

  FileSystem* fs_;  // null after a move
  UseLock lock_;
  std::string path_;
  bool made_;
  bool finished_ = false;
  std::vector<std::string> files_;
};

}  // namespace trainyard::checkpoint
