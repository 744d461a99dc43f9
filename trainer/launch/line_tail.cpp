#include "trainer/launch/line_tail.h"

namespace trainyard::launch {

void LineTail::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t take = std::min({end == std::string_view::npos ? bytes.size() : end, kMaxLine - partial_.size()});
    partial_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    const bool newline = !bytes.empty() && bytes.front() == '\n';
    if (newline) bytes.remove_prefix(1);
    if (newline || partial_.size() == kMaxLine) {
      Emit(partial_);
      partial_.clear();
    }
  }
}

void LineTail::Finish() {
  if (!partial_.empty()) Emit(partial_);
  partial_.clear();
}

void LineTail::Emit(std::string_view line) {
  sink_(prefix_ + std::string(line) + "\n");
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  last_.emplace_back(line);
  if (last_.size() > kKeptLines) last_.pop_front();
}

std::string LineTail::Message() const {
  for (auto line = last_.rbegin(); line != last_.rend(); ++line) {
    if (line->rfind("trainyard-", 0) == 0) return *line;
  }
  std::string joined;
  for (const std::string& line : last_) joined += (joined.empty() ? "" : "\n") + line;
  return joined;
}

}  // namespace trainyard::launch
