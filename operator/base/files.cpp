#include "operator/base/files.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace trainyard {

Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp-" + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return Fail(ErrorCode::kUnavailable, "cannot write " + path + ": " + std::strerror(error));
  }
  return {};
}

Result<std::string> ReadFile(const std::string& path) {
  // Opening a directory succeeds, and reads as if it were an empty file.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Fail(ErrorCode::kInvalidArgument, "cannot read " + path + ": it is a directory, not a file");
  }
  const auto unavailable = [&path](int error) {
    return Fail(ErrorCode::kUnavailable, "cannot read " + path + ": " + std::strerror(error));
  };
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return Fail(ErrorCode::kNotFound, "cannot read " + path + ": " + std::strerror(ENOENT));
  if (!in) return unavailable(errno);
  std::string text;
  std::array<char, 1 << 14> part;
  do {
    in.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(in.gcount()));
  } while (in);
  if (in.bad()) return unavailable(EIO);
  return text;
}

Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Fail(ErrorCode::kUnavailable, "cannot make " + path + ": " + error.message());
  return {};
}

}  // namespace trainyard
