// Cuts the bytes of a watch into lines, however they were cut on their way. Thread-safety: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard::kube {

class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line) : max_line_(max_line) {}

  // Error: kInvalidArgument when a line grows beyond max_line; the splitter then holds nothing.
  Status Add(std::string_view bytes);
  // The next whole line without its end ("\n" or "\r\n"); empty lines are skipped.
  std::optional<std::string> Next();
  // True when bytes of an unfinished line are left.
  bool Unfinished() const { return start_ < buffer_.size(); }

 private:
  const size_t max_line_;
  std::string buffer_;
  size_t start_ = 0;    // of the next line
  size_t scanned_ = 0;  // no '\n' before it
};

}  // namespace trainyard::kube
