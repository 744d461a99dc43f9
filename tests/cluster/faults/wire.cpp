#include "tests/cluster/faults/wire.h"

#include <algorithm>
#include <charconv>

namespace trainyard::faults {
namespace {

size_t NumberOf(const std::string& text, int base) {
  size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

}  // namespace

std::string Head::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

int Head::StatusCode() const {
  const size_t space = first_line.find(' ');
  return first_line.starts_with("HTTP/") && space != std::string::npos
             ? static_cast<int>(NumberOf(first_line.substr(space + 1, 3), 10))
             : 0;
}

bool WireReader::Fill() {
  char bytes[32 << 10];
  const size_t count = source_(bytes, sizeof(bytes));
  buffer_.append(bytes, count);
  return count > 0;
}

std::string WireReader::Take(size_t size) {
  std::string taken = buffer_.substr(0, size);
  buffer_.erase(0, taken.size());
  return taken;
}

std::optional<std::string> WireReader::ReadLine() {
  size_t end = buffer_.find("\r\n");
  while (end == std::string::npos) {
    if (!Fill()) return std::nullopt;
    end = buffer_.find("\r\n");
  }
  std::string line = Take(end);
  buffer_.erase(0, 2);
  return line;
}

std::optional<Head> WireReader::ReadHead() {
  std::optional<std::string> line = ReadLine();
  if (!line) {
    broken_ = !buffer_.empty();
    return std::nullopt;
  }
  Head head{*std::move(line), {}};
  while ((line = ReadLine()) && !line->empty()) {
    const size_t colon = std::min(line->find(':'), line->size());
    const size_t value = line->find_first_not_of(' ', std::min(colon + 1, line->size()));
    head.headers[line->substr(0, colon)] = value == std::string::npos ? "" : line->substr(value);
  }
  broken_ = !line;
  return broken_ ? std::nullopt : std::optional(std::move(head));
}

void WireReader::BeginBody(const Head& head, bool response, bool empty) {
  in_chunk_ = false;
  broken_ = false;
  left_ = NumberOf(head.Header("Content-Length"), 10);
  if (empty) {
    framing_ = Framing::kNone;
  } else if (head.Header("Transfer-Encoding") == "chunked") {
    framing_ = Framing::kChunked;
  } else if (!head.Header("Content-Length").empty()) {
    framing_ = Framing::kLength;
  } else {
    framing_ = response ? Framing::kUntilEnd : Framing::kNone;
  }
}

std::optional<std::string> WireReader::ReadBody() {
  if (framing_ == Framing::kNone) return std::nullopt;
  if (framing_ == Framing::kUntilEnd) {
    if (buffer_.empty() && !Fill()) return std::nullopt;
    return Take(buffer_.size());
  }
  if (framing_ == Framing::kChunked && left_ == 0) {
    if (in_chunk_ && !ReadLine()) return broken_ = true, std::nullopt;
    const std::optional<std::string> size = ReadLine();
    if (!size) return broken_ = true, std::nullopt;
    left_ = NumberOf(*size, 16);
    in_chunk_ = left_ > 0;
    if (left_ == 0) {
      framing_ = Framing::kNone;
      ReadLine();  // the API server sends no trailers
      return std::nullopt;
    }
  }
  if (framing_ == Framing::kLength && left_ == 0) return std::nullopt;
  if (buffer_.empty() && !Fill()) return broken_ = true, std::nullopt;
  std::string piece = Take(std::min(left_, buffer_.size()));
  left_ -= piece.size();
  return piece;
}

std::string WireReader::ReadWholeBody() {
  std::string body;
  while (const std::optional<std::string> piece = ReadBody()) body += *piece;
  return body;
}

}  // namespace trainyard::faults
