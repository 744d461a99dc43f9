// Exit codes of `trainyard`, told in docs. Thread-safety: constants.
#pragma once

#include "operator/base/error.h"

namespace trainyard::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitJobFailed = 1;      // the job failed, or the check found damage
inline constexpr int kExitBadInput = 2;       // usage, or an input that cannot be right
inline constexpr int kExitUnreachable = 3;    // no `trainyard run` answers, or standard output takes no more
inline constexpr int kExitNotFound = 4;       // the named thing does not exist
inline constexpr int kExitInterrupted = 130;  // stopped by Ctrl-C

// The code for an error that ends a command.
inline int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      return kExitUnreachable;
    case ErrorCode::kInternal:
    case ErrorCode::kDataLoss:
      return kExitJobFailed;
    default:
      return kExitBadInput;
  }
}

}  // namespace trainyard::cli
