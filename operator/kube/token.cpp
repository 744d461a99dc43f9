#include "operator/kube/token.h"

#include <utility>

#include "operator/base/files.h"

namespace trainyard::kube {

Token::Token(std::string fixed, std::string file, std::function<Time()> now)
    : fixed_(std::move(fixed)), file_(std::move(file)), now_(std::move(now)) {}

Result<std::string> Token::Get() {
  if (file_.empty()) return fixed_;
  std::lock_guard lock(mutex_);
  if (!stale_ && now_() - read_at_ < kReadEvery) return current_;
  Result<std::string> text = ReadFile(file_);
  if (text) {
    const size_t last = text->find_last_not_of(" \t\r\n");
    text->resize(last == std::string::npos ? 0 : last + 1);
  }
  if (text && !text->empty()) {
    current_ = *std::move(text);
    stale_ = false;
  } else if (current_.empty()) {
    return Fail(ErrorCode::kUnavailable, "token file " + file_ + (text ? " is empty" : ": " + text.error().message));
  }
  read_at_ = now_();
  return current_;
}

bool Token::Refused(const std::string& token) {
  if (file_.empty()) return false;
  std::lock_guard lock(mutex_);
  if (token == current_) stale_ = true;
  return true;
}

}  // namespace trainyard::kube
