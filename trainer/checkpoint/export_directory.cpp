#include "trainer/checkpoint/export_directory.h"

#include <optional>
#include <utility>

namespace trainyard::checkpoint {

Result<ExportDirectory> ExportDirectory::Open(const std::string& path, FileSystem& fs, const std::string& doing) {
  if (Status s = EnsureParents(fs, path); !s) return Fail(s.error());
  const Status made = fs.MakeDirectory(path);
  if (!made && made.error().code != ErrorCode::kAlreadyExists) return Fail(made.error());
  // Of two that begin at once one goes away here, before either would remove what the other writes.
  std::optional<UseLock> lock = UseLock::ToFill(path);
  if (!lock) {
    return Fail(ErrorCode::kAlreadyExists,
                path + " is being filled by another program: " + doing + " into a new directory");
  }
  const Result<std::vector<std::string>> names = fs.ListDirectory(path);
  if (!names) return Fail(names.error());
  if (!names->empty()) {
    return Fail(ErrorCode::kAlreadyExists,
                path + " is not empty (" + names->front() + "): " + doing + " into a new directory");
  }
  return ExportDirectory(fs, path, made.has_value(), std::move(*lock));
}

ExportDirectory::ExportDirectory(ExportDirectory&& other) noexcept
    : fs_(std::exchange(other.fs_, nullptr)),
      lock_(std::move(other.lock_)),
      path_(std::move(other.path_)),
      made_(other.made_),
      finished_(other.finished_),
      files_(std::move(other.files_)) {}

ExportDirectory::~ExportDirectory() {
  if (fs_ == nullptr || finished_) return;
  // The error that led here is the one to tell; what cannot be removed is without config.json and taken for nothing.
  const auto ignored = [](const Error&) {};
  for (const std::string& file : files_) fs_->RemoveFile(path_ + "/" + file).map_error(ignored);
  if (made_) fs_->RemoveDirectory(path_).map_error(ignored);
}

std::string ExportDirectory::NewFile(const std::string& name) {
  files_.push_back(name);
  return path_ + "/" + name;
}

Status ExportDirectory::WriteText(const std::string& name, std::string_view text) {
  return WriteWholeFile(*fs_, NewFile(name), text);
}

Status ExportDirectory::Finish() {
  if (Status s = fs_->SyncDirectory(path_); !s) return s;
  finished_ = true;
  return {};
}

}  // namespace trainyard::checkpoint
