#include "operator/controller/refusals.h"

namespace trainyard::controller {
namespace {

bool IsRefusal(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kPermissionDenied ||
         error.code == ErrorCode::kResourceExhausted || error.code == ErrorCode::kAlreadyExists;
}

// A name that is taken was found so by us, and the message says by whom.
std::string TextOf(const Error& error) {
  return error.code == ErrorCode::kAlreadyExists ? error.message : "the API server refuses it: " + error.message;
}

}  // namespace

void Refusals::Note(const std::string& key, int64_t attempt, const Status& acted) {
  std::lock_guard lock(mutex_);
  if (acted) {
    refusals_.erase(key);
    return;
  }
  if (!IsRefusal(acted.error())) return;
  const auto known = refusals_.find(key);
  if (known != refusals_.end() && known->second.attempt == attempt) return;
  refusals_[key] = {attempt, TextOf(acted.error())};
}

void Refusals::Forget(const std::string& key) {
  std::lock_guard lock(mutex_);
  refusals_.erase(key);
}

std::string Refusals::Of(const std::string& key, int64_t attempt) const {
  std::lock_guard lock(mutex_);
  const auto known = refusals_.find(key);
  return known != refusals_.end() && known->second.attempt == attempt ? known->second.message : "";
}

}  // namespace trainyard::controller
