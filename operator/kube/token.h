// The bearer token. A token in a file is short-lived: the kubelet replaces it, and so it is read again.
// Thread-safety: all members from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "operator/base/error.h"

namespace trainyard::kube {

class Token {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kReadEvery{60};

  // `file` wins over `fixed`; neither: requests go without. `now` is replaced in tests.
  Token(std::string fixed, std::string file, std::function<Time()> now = std::chrono::steady_clock::now);

  // The token, read from its file at most every kReadEvery. A file that cannot be read leaves the old token in place.
  // "" for none. Error: kUnavailable when there is a file and none could ever be read.
  Result<std::string> Get();
  // The server answered 401 to `token`: the next Get() reads again, unless that has happened since. False: there is no
  // file, so that trying again is idle.
  bool Refused(const std::string& token);

 private:
  const std::string fixed_;
  const std::string file_;
  const std::function<Time()> now_;
  std::mutex mutex_;  // guards the rest
  std::string current_;
  Time read_at_{};
  bool stale_ = true;
};

}  // namespace trainyard::kube
