// The standard error of one rank: cut into lines, each passed on with a prefix, the last ones kept for the termination
// message. Thread-safety: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace trainyard::launch {

class LineTail {
 public:
  using Sink = std::function<void(const std::string& line)>;  // with prefix and newline
  LineTail(std::string prefix, Sink sink) : prefix_(std::move(prefix)), sink_(std::move(sink)) {}

  // Bytes as they come. A line longer than kMaxLine is passed on in pieces.
  void Append(std::string_view bytes);
  // Passes on an unfinished last line.
  void Finish();
  // What to say about a failure: the last line of one of our own programs ("trainyard-...: ..."), which is made to be
  // enough, else the last few lines.
  std::string Message() const;

  static constexpr size_t kMaxLine = 16 * 1024;
  static constexpr size_t kKeptLines = 10;

 private:
  void Emit(std::string_view line);

  std::string prefix_;
  Sink sink_;
  std::string partial_;
  std::deque<std::string> last_;
};

}  // namespace trainyard::launch
