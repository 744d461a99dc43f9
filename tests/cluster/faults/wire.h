// HTTP/1.1 as bytes, for a proxy that must be able to break it: reads heads and bodies (by length, chunked, or until
// the end) from any source of bytes, piece by piece as they come. Thread-safety: one reader, one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "operator/http/message.h"

namespace trainyard::faults {

struct Head {
  std::string first_line;  // "GET /path HTTP/1.1" or "HTTP/1.1 200 OK", without its line end
  http::Headers headers;

  std::string Header(const std::string& name) const;  // "" when absent
  int StatusCode() const;                             // of a response; 0 when it is none
};

class WireReader {
 public:
  // Puts up to `size` bytes at `at` and returns how many; 0: the end, or an error.
  using Source = std::function<size_t(char* at, size_t size)>;
  explicit WireReader(Source source) : source_(std::move(source)) {}

  // The next message's head; nullopt when the source ends before one is complete.
  std::optional<Head> ReadHead();
  // Says how the body of `head` is delimited; `empty`: it has none, whatever its headers say (answer to HEAD, 204).
  void BeginBody(const Head& head, bool response, bool empty);
  // What has come of the body, at least one byte; nullopt: the body has ended, or the source has (see broken()).
  std::optional<std::string> ReadBody();
  std::string ReadWholeBody();
  // The source ended inside a message.
  bool broken() const { return broken_; }
  // Bytes are there that need no read of the source.
  bool buffered() const { return !buffer_.empty(); }

 private:
  enum class Framing { kNone, kLength, kChunked, kUntilEnd };
  bool Fill();
  std::optional<std::string> ReadLine();
  std::string Take(size_t size);

  Source source_;
  std::string buffer_;
  Framing framing_ = Framing::kNone;
  size_t left_ = 0;  // bytes of the body, or of the current chunk
  bool in_chunk_ = false;
  bool broken_ = false;
};

}  // namespace trainyard::faults
