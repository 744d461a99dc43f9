// Why a job cannot have what it needs (quota, pod security, a name that is taken), so that the next decision can give
// the claim back and tell the job's owner. A failure that may pass by itself is not a refusal. Nothing depends on it: a
// new operator learns it from its own next try. Thread-safety: all members from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "operator/base/error.h"

namespace trainyard::controller {

class Refusals {
 public:
  // Of the job's last actions. The first refusal of an attempt stays until a success: each pod's reads a bit different,
  // and which comes first is chance.
  void Note(const std::string& key, int64_t attempt, const Status& acted);
  void Forget(const std::string& key);
  // Empty: none in this attempt.
  std::string Of(const std::string& key, int64_t attempt) const;

 private:
  struct Refusal {
    int64_t attempt;
    std::string message;
  };
  mutable std::mutex mutex_;  // guards refusals_
  std::map<std::string, Refusal> refusals_;
};

}  // namespace trainyard::controller
