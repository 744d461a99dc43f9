// Jobs whose status cannot be read, and what was told of each: once per problem. Thread-safety: all members from any
// thread.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace trainyard::controller {

class Unreadable {
 public:
  // True if this problem of the job is news. Empty: there is none (any more).
  bool News(const std::string& key, const std::string& uid, const std::string& problem) {
    std::lock_guard lock(mutex_);
    if (problem.empty()) {
      told_.erase(key);
      return false;
    }
    std::string& told = told_[key];
    if (told == uid + problem) return false;
    told = uid + problem;
    return true;
  }

 private:
  std::mutex mutex_;                         // guards told_
  std::map<std::string, std::string> told_;  // job -> UID and problem
};

}  // namespace trainyard::controller
