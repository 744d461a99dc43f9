// How a rank fails: one line for people and the contract's exit code for the operator. Every error of the rooms below
// becomes a Failure at the place that knows what it was trying to do. Thread-safety: plain values.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "operator/base/error.h"
#include "trainer/contract/contract.h"

namespace trainyard::loop {

struct Failure {
  contract::ExitCode exit_code = contract::kExitInternal;
  std::string message;
};

template <typename T>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> Fails(contract::ExitCode exit_code, std::string message) {
  return tl::unexpected<Failure>(Failure{exit_code, std::move(message)});
}
inline tl::unexpected<Failure> Fails(Failure failure) { return tl::unexpected<Failure>(std::move(failure)); }

// While writing to the checkpoint directory: fenced off, a bug of ours, or else the storage.
Failure WriteFailure(const Error& error, const std::string& doing);
// The same where the job has never written before: what it may not do there, or cannot, is so at every start, and is
// told once instead of being tried again.
Failure FirstWriteFailure(const Error& error, const std::string& doing);
// While reading a checkpoint that must be readable.
Failure ReadFailure(const Error& error, const std::string& doing);
// While the ranks find each other.
Failure ConnectFailure(const Error& error);
// An exception that reached the end of the room: lost peers, memory, bugs. The message is cut to its first line.
Failure FromException(const std::exception& exception);

}  // namespace trainyard::loop
