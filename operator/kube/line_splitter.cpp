#include "operator/kube/line_splitter.h"

namespace trainyard::kube {

Status LineSplitter::Add(std::string_view bytes) {
  if (start_ > 0 && start_ >= buffer_.size() / 2) {
    buffer_.erase(0, start_);
    scanned_ -= start_;
    start_ = 0;
  }
  buffer_.append(bytes);
  // Only a line that no '\n' ends can be too long for good; whole ones are checked when they are taken.
  const size_t last = buffer_.rfind('\n');
  const size_t open = last == std::string::npos ? start_ : std::max(start_, last + 1);
  if (buffer_.size() - open <= max_line_) return {};
  buffer_.clear();
  start_ = scanned_ = 0;
  return Fail(ErrorCode::kInvalidArgument, "a line is longer than " + std::to_string(max_line_) + " bytes");
}

std::optional<std::string> LineSplitter::Next() {
  while (true) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      return std::nullopt;
    }
    std::string line = buffer_.substr(start_, end - start_);
    start_ = scanned_ = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) return line;
  }
}

}  // namespace trainyard::kube
