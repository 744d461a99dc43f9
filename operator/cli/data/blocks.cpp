#include "operator/cli/data/blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trainyard::cli {
namespace {

Error Failed(const std::string& path, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound
                         : error == EACCES || error == EPERM ? ErrorCode::kPermissionDenied
                         : error == EISDIR                   ? ErrorCode::kInvalidArgument
                                                             : ErrorCode::kUnavailable;
  return {code, "cannot read " + path + ": " + std::strerror(error)};
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
// Inside of a UTF-8 sequence: not a place to cut.
bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The code point that begins at, or with `ends` ends before, `at`; 0 where there is none.
uint32_t CodePointAt(const std::string& text, size_t at, bool ends) {
  if (ends) {
    do {
      if (at == 0) return 0;
      --at;
    } while (Continues(text[at]));
  }
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return lead;
  if (lead < 0xe0) return (lead & 0x1f) << 6 | (byte(at + 1) & 0x3f);
  return lead < 0xf0 ? (lead & 0xf) << 12 | (byte(at + 1) & 0x3f) << 6 | (byte(at + 2) & 0x3f) : 0;
}

// A letter of the common scripts: no tokenizer takes it for white space or punctuation.
bool IsLetter(uint32_t c) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 9> ranges = {{{'A', 'Z'},
                                                                    {'a', 'z'},
                                                                    {0xd8, 0xf6},
                                                                    {0x3b1, 0x3c9},
                                                                    {0x400, 0x481},
                                                                    {0x5d0, 0x5ea},
                                                                    {0x620, 0x63f},
                                                                    {0x4e00, 0x9fff},
                                                                    {0xac00, 0xd7a3}}};
  return std::any_of(ranges.begin(), ranges.end(), [c](const auto& r) { return c >= r.first && c <= r.second; });
}

// The last place in `text` that `good` likes, from the end down to kBlockBytes / 2.
template <typename F>
size_t LastPlace(const std::string& text, F good) {
  for (size_t at = text.size() - 1; at > BlockReader::kBlockBytes / 2; --at) {
    if (good(at)) return at;
  }
  return std::string::npos;
}

}  // namespace

BlockReader::~BlockReader() {
  if (fd_ >= 0) close(fd_);
}

Status BlockReader::OpenNext() {
  const std::string& path = paths_[file_];
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return Fail(Failed(path, errno));
  // Fails for a pipe, which is read in order anyway.
  posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  at_end_ = false;
  begins_ = true;
  line_ = 1;
  return {};
}

Status BlockReader::Fill(size_t bytes) {
  while (!at_end_ && pending_.size() < bytes) {
    const size_t had = pending_.size();
    pending_.resize(bytes);
    const ssize_t n = read(fd_, pending_.data() + had, bytes - had);
    const int error = errno;
    pending_.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && error != EINTR) return Fail(Failed(paths_[file_], error));
    at_end_ = n == 0;
  }
  return {};
}

size_t BlockReader::CutPlace(size_t& dropped) const {
  const std::string& text = pending_;
  dropped = 0;
  if (cut_ == Cut::kLines) {
    const size_t line_break = text.rfind('\n');
    return line_break == std::string::npos ? line_break : line_break + 1;
  }
  const auto between_words = [&](size_t at) {
    return text[at] == ' ' && IsLetter(CodePointAt(text, at, true)) && IsLetter(CodePointAt(text, at + 1, false));
  };
  const size_t space = LastPlace(text, between_words);
  if (space != std::string::npos) {
    dropped = cut_ == Cut::kOverSpace ? 1 : 0;
    return space;
  }
  // No two words: between lines, and where there are none, between characters.
  const auto line_start = [&](size_t at) {
    return text[at - 1] == '\n' && !IsSpace(text[at - 2]) && !IsSpace(text[at]) && !Continues(text[at]);
  };
  const size_t line = LastPlace(text, line_start);
  if (line != std::string::npos || text.size() < 8 * kBlockBytes) return line;
  return LastPlace(text, [&](size_t at) { return !Continues(text[at]); });
}

Result<std::optional<Block>> BlockReader::Next() {
  if (fd_ < 0) {
    if (file_ == paths_.size()) return std::nullopt;
    if (Status opened = OpenNext(); !opened) return Fail(opened.error());
  }
  size_t cut = std::string::npos, dropped = 0;
  for (size_t want = kBlockBytes; cut == std::string::npos; want *= 2) {
    if (Status read = Fill(want); !read) return Fail(read.error());
    if (at_end_ && (pending_.size() < want || cut_ == Cut::kLines)) {
      cut = pending_.size();
      break;
    }
    if ((cut = CutPlace(dropped)) == std::string::npos && pending_.size() >= kMostBytes) {
      return Fail(ErrorCode::kInvalidArgument, paths_[file_] + ":" + std::to_string(line_) +
                                                   ": is longer than 256 MiB; is it JSON Lines, one object a line?");
    }
  }
  if (pending_.empty() && begins_) return Fail(ErrorCode::kInvalidArgument, "input " + paths_[file_] + " is empty");
  Block block;
  block.file = file_;
  block.line = line_;
  block.begins = std::exchange(begins_, false);
  block.text = pending_.substr(0, cut);
  pending_.erase(0, cut + dropped);
  line_ += std::count(block.text.begin(), block.text.end(), '\n');
  // Whether this was the last block has to be known now, since a document ends with it.
  if (pending_.empty()) {
    if (Status read = Fill(1); !read) return Fail(read.error());
  }
  block.ends = at_end_ && pending_.empty();
  if (block.ends) {
    close(std::exchange(fd_, -1));
    ++file_;
  }
  return block;
}

Result<int64_t> BlockReader::TotalBytes(const std::vector<std::string>& paths) {
  int64_t total = 0;
  bool known = true;
  for (const std::string& path : paths) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) return Fail(Failed(path, errno));
    if (S_ISDIR(info.st_mode)) return Fail(Failed(path, EISDIR));
    known = known && S_ISREG(info.st_mode);
    total += info.st_size;
  }
  return known ? total : 0;
}

}  // namespace trainyard::cli
