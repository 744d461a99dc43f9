// Sockets around the meeting point: opening rank 0's port, and reaching it from the others while its name does not
// resolve yet and nobody listens yet. Plain POSIX, so that errors are ours to word.
// Thread-safety: pure of shared state; the functions block.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "operator/base/error.h"

namespace trainyard::dist {

using SteadyTime = std::chrono::steady_clock::time_point;

// A socket that listens on `port` on all IPv4 addresses of this machine, or with `ipv6` on all IPv6 ones (and IPv4
// where the system maps them); the caller owns it. Errors: kAlreadyExists when another program has the port,
// kPermissionDenied, kUnavailable.
Result<int> BindPort(int port, bool ipv6);

// Blocks until host:port accepts a connection, and returns the address of this machine from which it was reached, as
// digits. `say`, unless empty, hears every `say_every` what is in the way. Error: kDeadlineExceeded with the last
// obstacle.
Result<std::string> Reach(const std::string& host, int port, SteadyTime deadline,
                          const std::function<void(const std::string&)>& say, std::chrono::milliseconds say_every);

}  // namespace trainyard::dist
