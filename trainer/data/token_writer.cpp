#include "trainer/data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace trainyard::data {
namespace {

constexpr size_t kBuffer = 1 << 20;

Error Failed(const std::string& path, int error) {
  ErrorCode code = ErrorCode::kUnavailable;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = ErrorCode::kResourceExhausted;
  if (error == EACCES || error == EPERM || error == EROFS) code = ErrorCode::kPermissionDenied;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  return {code, "cannot write " + path + ": " + std::strerror(error)};
}

// A file descriptor with a buffer in front of it.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) { buffer_.reserve(kBuffer); }
  ~Stream() {
    if (fd_ >= 0) close(fd_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int fd() const { return fd_; }
  // 0, or errno.
  int Write(const void* data, size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    return buffer_.size() < kBuffer ? 0 : Flush();
  }
  int Flush() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t n = write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      done += static_cast<size_t>(n);
    }
    buffer_.clear();
    return 0;
  }

 private:
  const int fd_;
  std::string buffer_;
};

}  // namespace

struct TokenWriter::State {
  State(std::string path, TokenHeader the_header, int fd, int bits_fd)
      : final_path(std::move(path)), partial_path(Partial(final_path)), header(the_header), file(fd), bits(bits_fd) {}
  ~State() {
    if (!finished) unlink(partial_path.c_str());
  }
  static std::string Partial(const std::string& path) { return path + ".partial-" + std::to_string(getpid()); }

  const std::string final_path, partial_path;
  TokenHeader header;
  Stream file;
  Stream bits;  // of the tokens so far; no file without target bits
  uint8_t open_bits = 0;
  int64_t counted = 0;
  bool finished = false;

  Status Check(int error) const { return error == 0 ? Status() : Status(Fail(Failed(final_path, error))); }
  Status AppendBits(size_t count, const uint8_t* counts);
  Status CopyBits();
};

// One bit a token; whole bytes go out as they fill.
Status TokenWriter::State::AppendBits(size_t count, const uint8_t* counts) {
  for (size_t i = 0; i < count; ++i) {
    const int place = static_cast<int>((header.tokens + static_cast<int64_t>(i)) % 8);
    if (counts == nullptr || counts[i] != 0) {
      open_bits = static_cast<uint8_t>(open_bits | 1 << place);
      ++counted;
    }
    if (place < 7) continue;
    if (const int error = bits.Write(&open_bits, 1); error != 0) return Check(error);
    open_bits = 0;
  }
  return {};
}

// Behind the tokens.
Status TokenWriter::State::CopyBits() {
  int error = header.tokens % 8 == 0 ? 0 : bits.Write(&open_bits, 1);
  if (error == 0) error = bits.Flush();
  if (error == 0 && lseek(bits.fd(), 0, SEEK_SET) < 0) error = errno;
  std::array<char, 1 << 16> part;
  while (error == 0) {
    const ssize_t n = read(bits.fd(), part.data(), part.size());
    if (n == 0) break;
    if (n < 0 && errno != EINTR) error = errno;
    if (n > 0) error = file.Write(part.data(), static_cast<size_t>(n));
  }
  return Check(error);
}

TokenWriter::TokenWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;
TokenWriter::~TokenWriter() = default;

Result<TokenWriter> TokenWriter::Create(const std::string& path, TokenHeader header) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return Fail(Failed(path, EISDIR));
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return Fail(ErrorCode::kInvalidArgument,
                "cannot write " + path + ": it is a device or a pipe, and a token file would take its place");
  }
  header.bytes_per_token = TokenWidth(header.vocab);
  header.tokens = header.documents = 0;
  const std::string partial = State::Partial(path);
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(Failed(path, errno));
  int bits = -1;
  if (header.target_bits) {
    // On the same disk, which has the room; without a name from the start.
    const std::string bits_path = partial + ".bits";
    bits = open(bits_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int error = errno;
    unlink(bits_path.c_str());
    if (bits < 0) {
      close(fd);
      unlink(partial.c_str());
      return Fail(Failed(path, error));
    }
  }
  TokenWriter writer(std::make_unique<State>(path, header, fd, bits));
  const std::string room = EncodeTokenHeader(header);  // the real one comes last
  if (Status status = writer.state_->Check(writer.state_->file.Write(room.data(), room.size())); !status) {
    return Fail(status.error());
  }
  return writer;
}

Status TokenWriter::Append(const uint32_t* tokens, size_t count, const uint8_t* counts) {
  State& s = *state_;
  for (size_t i = 0; i < count; ++i) {
    if (tokens[i] >= s.header.vocab) {
      return Fail(ErrorCode::kInternal, "token " + std::to_string(tokens[i]) + " for " + s.final_path +
                                            " is not below the vocabulary of " + std::to_string(s.header.vocab));
    }
  }
  int error = 0;
  if (s.header.bytes_per_token == 4) {
    error = s.file.Write(tokens, count * sizeof *tokens);
  } else {
    const std::vector<uint16_t> narrow(tokens, tokens + count);
    error = s.file.Write(narrow.data(), narrow.size() * sizeof(uint16_t));
  }
  if (error != 0) return s.Check(error);
  if (s.header.target_bits) {
    if (Status status = s.AppendBits(count, counts); !status) return status;
  } else {
    s.counted += static_cast<int64_t>(count);
  }
  s.header.tokens += static_cast<int64_t>(count);
  return {};
}

void TokenWriter::EndDocument() { ++state_->header.documents; }
int64_t TokenWriter::tokens() const { return state_->header.tokens; }
int64_t TokenWriter::documents() const { return state_->header.documents; }
int64_t TokenWriter::counted() const { return state_->counted; }

Status TokenWriter::Finish() {
  State& s = *state_;
  if (s.header.target_bits) {
    if (Status status = s.CopyBits(); !status) return status;
  }
  const std::string header = EncodeTokenHeader(s.header);
  int error = s.file.Flush();
  if (error == 0) {
    const ssize_t n = pwrite(s.file.fd(), header.data(), header.size(), 0);
    // Less than the whole is no header, and says no reason.
    if (n != static_cast<ssize_t>(header.size())) error = n < 0 ? errno : EIO;
  }
  if (error == 0 && fsync(s.file.fd()) != 0) error = errno;
  if (error == 0 && std::rename(s.partial_path.c_str(), s.final_path.c_str()) != 0) error = errno;
  if (error != 0) return s.Check(error);
  s.finished = true;
  return {};
}

}  // namespace trainyard::data
