// Errors as values: every border of a room returns Result<T>; exceptions of third parties stop at the adapter that
// meets them. Thread-safety: plain values.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace trainyard {

enum class ErrorCode {
  kInvalidArgument,     // what the caller or user gave cannot be right; retrying does not help
  kNotFound,            // the object or file does not exist
  kAlreadyExists,       // a create met an object of that name
  kConflict,            // a resourceVersion or UID precondition did not hold; read again
  kGone,                // a watch or list version has expired; list again
  kPermissionDenied,    // refused by authorization or file permissions
  kResourceExhausted,   // quota, disk or memory is full
  kUnavailable,         // a peer or server cannot be reached or asks to come back later
  kDeadlineExceeded,    // it took longer than allowed
  kDataLoss,            // bytes are missing or do not match their hash
  kFailedPrecondition,  // the system is not in the state that the call needs
  kInternal,            // a bug of ours, or a third party broke its promise
};

// Stable upper-camel name for logs, for example "NotFound".
std::string_view ErrorCodeName(ErrorCode code);

// One error. `message` is one clear line: what, where, and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // True where the same call may succeed later without a change by the user.
  bool Retryable() const {
    return code == ErrorCode::kConflict || code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
           code == ErrorCode::kGone || code == ErrorCode::kInternal;
  }
  // The same error with "context: " before its message.
  Error Wrap(std::string_view context) const { return {code, std::string(context) + ": " + message}; }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace trainyard
