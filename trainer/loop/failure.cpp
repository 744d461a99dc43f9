#include "trainer/loop/failure.h"

#include <unistd.h>

#include <new>

#include <c10/util/Exception.h>

#include "trainer/dist/comm.h"
#include "trainer/engine/offload_file.h"
#include "trainer/model/model.h"

namespace trainyard::loop {
namespace {

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

bool SaysOutOfMemory(const std::string& text) {
  for (const char* sign : {"can't allocate memory", "out of memory", "Cannot allocate memory"}) {
    if (text.find(sign) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Failure WriteFailure(const Error& error, const std::string& doing) {
  std::string message = doing + ": " + error.message;
  if (error.code == ErrorCode::kResourceExhausted)
    message += "; free space on the volume of the checkpoints or enlarge it";
  switch (error.code) {
    case ErrorCode::kFailedPrecondition:
      return {contract::kExitFenced, message};
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInternal:
      return {contract::kExitInternal, message};
    default:
      return {contract::kExitStorage, message};
  }
}

Failure FirstWriteFailure(const Error& error, const std::string& doing) {
  const std::string message = doing + ": " + error.message;
  switch (error.code) {
    case ErrorCode::kPermissionDenied:
      return {contract::kExitConfiguration,
              message + "; the volume must be mounted writable, and the directory must let user " +
                  std::to_string(geteuid()) + " write"};
    case ErrorCode::kInvalidArgument:
      return {contract::kExitConfiguration, message};
    default:
      return WriteFailure(error, doing);
  }
}

Failure ReadFailure(const Error& error, const std::string& doing) {
  const std::string message = doing + ": " + error.message;
  switch (error.code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      return {contract::kExitStorage, message};
    case ErrorCode::kInternal:
      return {contract::kExitInternal, message};
    default:
      return {contract::kExitCheckpoint, message};
  }
}

Failure ConnectFailure(const Error& error) {
  const contract::ExitCode code = error.code == ErrorCode::kAlreadyExists     ? contract::kExitPortInUse
                                  : error.code == ErrorCode::kInvalidArgument ? contract::kExitConfiguration
                                                                              : contract::kExitCommunication;
  return {code, "cannot connect the ranks: " + error.message};
}

Failure FromException(const std::exception& exception) {
  if (dynamic_cast<const dist::CommError*>(&exception) != nullptr) {
    return {contract::kExitCommunication, FirstLine(exception.what())};
  }
  if (const auto* offload = dynamic_cast<const engine::OffloadError*>(&exception); offload != nullptr) {
    return {offload->denied() ? contract::kExitConfiguration : contract::kExitStorage, FirstLine(exception.what())};
  }
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return {contract::kExitOutOfMemory, "out of host memory"};
  }
  if (dynamic_cast<const model::TokenError*>(&exception) != nullptr) {
    return {contract::kExitData, FirstLine(exception.what())};
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&exception);
  const std::string message = FirstLine(torch != nullptr ? torch->what_without_backtrace() : exception.what());
  if (SaysOutOfMemory(message)) return {contract::kExitOutOfMemory, "out of memory: " + message};
  return {contract::kExitInternal, "internal error: " + message};
}

}  // namespace trainyard::loop
