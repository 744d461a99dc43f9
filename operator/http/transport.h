// The way out: sends one HTTP request and returns the whole answer, or opens one whose answer is read while it comes.
// An interface, so that tests answer from memory and the third party behind it can be replaced.
// Thread-safety: a Transport may be used from any thread, also at once; a Stream by one reader, with Stop() from any
// thread. A Transport must be gone before main() returns: the library behind it dislikes the end of the world.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "operator/base/error.h"
#include "operator/http/message.h"

namespace trainyard::http {

// Whom an https:// URL may lead to, and who calls. PEM text wins over a file. Files are read again for every new
// connection, so that rotated ones are taken up.
struct TlsOptions {
  std::string ca_pem;  // when an authority is given, it alone is trusted, not the system's
  std::string ca_file;
  std::string client_certificate_pem;
  std::string client_certificate_file;
  std::string client_key_pem;
  std::string client_key_file;
  std::string server_name;  // to be found in the server's certificate; empty: the host of the URL
  bool insecure_skip_verify = false;
};

struct TransportOptions {
  TlsOptions tls;
  // A connection on which nothing moves for so long is given up; what finds a half-open watch.
  std::chrono::milliseconds idle_timeout{600'000};
};

// What one Read() brought. No bytes and not the end: the time was up.
struct Chunk {
  std::string bytes;
  bool end = false;  // the answer is complete; no more will come
};

// An answer whose body is still coming.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual int status() const = 0;
  virtual const Headers& headers() const = 0;
  // Waits up to `timeout` for bytes and returns all that are there. Errors: kUnavailable when the connection broke, was
  // idle for too long or Stop() was called.
  virtual Result<Chunk> Read(std::chrono::milliseconds timeout) = 0;
  // Ends the stream and wakes a waiting Read().
  virtual void Stop() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Any answer of a server is a Response, whatever its status. Errors: kInvalidArgument for a URL or method that cannot
  // be sent, kUnavailable when the server cannot be reached, is not trusted or hangs up, kDeadlineExceeded after
  // request.timeout.
  virtual Result<Response> Send(const Request& request) = 0;
  // Returns once status and headers are there, at the latest after request.timeout; the body has no deadline.
  // Errors as Send, and kFailedPrecondition of a transport that cannot do it.
  virtual Result<std::unique_ptr<Stream>> Open(const Request& request);
};

// OpenSSL loads the system's certificate authorities anew for every connection that the library below opens, some 40 ms
// of CPU on an ordinary machine, even where an authority of our own is all that is trusted. After this call that
// happens once in the life of the process, and only when a transport trusts the system. Changes the environment
// (SSL_CERT_FILE, SSL_CERT_DIR; their values are kept): to be called at the start of a program, before its threads.
// Further calls do nothing.
void LoadSystemAuthoritiesOnce();

// Transport over cpprestsdk, the only door to it. Not for URLs of strangers: a malformed chunk in a response aborts the
// process inside that library.
std::unique_ptr<Transport> NewCpprestTransport(TransportOptions options = {});

// Transport for strangers: http:// alone, also to addresses of IPv6, a connection per call, headers and body bounded
// (kUnavailable beyond). It cannot stream.
std::unique_ptr<Transport> NewPlainTransport(size_t max_body_bytes = 1u << 20);

}  // namespace trainyard::http
