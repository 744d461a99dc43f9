// How cpprestsdk's connections are secured: own trust store, own certificate, both read again for every connection.
// Private to the room. Thread-safety: Configure() may be called from any thread at once.
#pragma once

#include <cpprest/http_client.h>

#include <mutex>
#include <string>

#include "operator/http/transport.h"

namespace trainyard::http {

class CpprestTls {
 public:
  explicit CpprestTls(TlsOptions options) : options_(std::move(options)) {}
  // For set_ssl_context_callback. What cannot be loaded leaves a context that trusts nobody, so that the handshake
  // fails, and is told by problem(): an exception would have to cross the library.
  void Configure(boost::asio::ssl::context& context);
  // Why the last connection was not configured; empty: it was.
  std::string problem() const;
  const TlsOptions& options() const { return options_; }

 private:
  Status Load(boost::asio::ssl::context& context) const;

  const TlsOptions options_;
  mutable std::mutex mutex_;  // guards problem_
  std::string problem_;
};

}  // namespace trainyard::http
