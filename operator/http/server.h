// A small HTTP/1.1 server for status, probes, metrics and webhooks. It stands on Boost.Beast, since the listener of
// cpprestsdk aborts the process on one malformed chunk and knows no limits. It owns its io_context and threads; every
// limit below is enforced before the handler sees the request.
// Thread-safety: all members may be called from any thread, Stop() more than once. The handler is called from
// `threads` threads at once, and must return soon: it holds its thread while it runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "operator/base/error.h"
#include "operator/http/message.h"

namespace trainyard::http {

// Answers one request. An exception that leaves it becomes status 500.
using Handler = std::function<Response(const Request&)>;

struct ServerOptions {
  // Address or name to bind. "" binds every interface, IPv6 and IPv4 (IPv4 alone where the kernel lacks IPv6).
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one, see Server::port()
  int threads = 1;
  size_t max_body_bytes = 7u << 20;     // 413 beyond it; the limit that API servers set for webhooks
  size_t max_header_bytes = 16u << 10;  // 431 beyond it
  std::chrono::milliseconds read_timeout{
      10'000};  // first byte of a new connection, and from first to last byte of a request
  std::chrono::milliseconds idle_timeout{30'000};  // between requests of one connection
  int max_connections = 256;                       // 503 and close beyond it
  // Receives one line per thing that an administrator may want to know; may be empty.
  std::function<void(const std::string&)> log;
};

class Server {
 public:
  // Binds, listens and starts the threads. Errors: kAlreadyExists names host:port when another program has the port,
  // kInvalidArgument for a host that does not resolve or a port out of range, kPermissionDenied, kUnavailable.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options, Handler handler);
  // Stops; see Stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port that is served.
  int port() const;
  // Closes the listener and all connections, and joins the threads: no handler runs once it returns. Must not be
  // called from the handler.
  void Stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::http
