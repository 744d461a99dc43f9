#include "operator/controller/refusals.h"

namespace trainyard::controller {
namespace {

bool IsRefusal(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kPermissionDenied ||
         error.code == ErrorCode::kAlreadyExists;
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
  refusals_[key] = {attempt, acted.error().message};
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
