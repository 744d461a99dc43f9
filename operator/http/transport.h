// The way out: sends one HTTP request and returns the whole answer. An interface, so that tests answer from memory and
// the third party behind it can be replaced.
// Thread-safety: Send may be called from any thread, also at once.
#pragma once

#include <memory>

#include "operator/base/error.h"
#include "operator/http/message.h"

namespace trainyard::http {

class Transport {
 public:
  virtual ~Transport() = default;
  // Any answer of a server is a Response, whatever its status. Errors: kInvalidArgument for a URL or method that cannot
  // be sent, kUnavailable when the server cannot be reached or hangs up, kDeadlineExceeded after request.timeout.
  virtual Result<Response> Send(const Request& request) = 0;
};

// Transport over cpprestsdk, the only door to it. Not for URLs of strangers: a malformed chunk in a response aborts the
// process inside that library.
std::unique_ptr<Transport> NewCpprestTransport();

}  // namespace trainyard::http
