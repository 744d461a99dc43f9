#include "operator/http/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "operator/http/session.h"

namespace trainyard::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Pause after accept failed, typically because the process is out of descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};

std::string Where(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (host.empty() ? "*" : v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Error BindError(const error_code& error, const std::string& where) {
  if (error == asio::error::address_in_use) {
    return {ErrorCode::kAlreadyExists,
            "port in use: another program listens on " + where + "; stop it or take another port"};
  }
  if (error == asio::error::access_denied) {
    return {ErrorCode::kPermissionDenied, "not allowed to listen on " + where + ": ports below 1024 need privileges"};
  }
  return {ErrorCode::kUnavailable, "cannot listen on " + where + ": " + error.message()};
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, Handler handler)
      : context_(std::make_shared<SessionContext>()),
        acceptor_(asio::make_strand(io_)),
        pause_(acceptor_.get_executor()) {
    context_->options = std::move(options);
    context_->handler = std::move(handler);
  }

  Status Bind() {
    const ServerOptions& options = context_->options;
    if (options.port < 0 || options.port > 65535) {
      return Fail(ErrorCode::kInvalidArgument, "port " + std::to_string(options.port) + " is not between 0 and 65535");
    }
    const auto port = static_cast<unsigned short>(options.port);
    if (options.host.empty()) {
      Status both = Listen({asio::ip::address_v6::any(), port});
      if (both || both.error().code != ErrorCode::kUnavailable) return both;
      return Listen({asio::ip::address_v4::any(), port});
    }
    error_code error;
    asio::ip::address address = asio::ip::make_address(options.host, error);
    if (error) {
      tcp::resolver resolver(io_);
      const auto found = resolver.resolve(options.host, "", error);
      if (error || found.empty()) {
        return Fail(ErrorCode::kInvalidArgument, "cannot listen on " + Where(options.host, options.port) +
                                                     ": the host does not resolve: " + error.message());
      }
      address = found.begin()->endpoint().address();
    }
    return Listen({address, port});
  }

  void Start() {
    Accept();
    for (int i = 0; i < std::max(1, context_->options.threads); ++i) {
      threads_.emplace_back([this] { io_.run(); });
    }
  }

  void Stop() {
    std::lock_guard<std::mutex> lock(stop_mutex_);
    io_.stop();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    error_code ignored;
    acceptor_.close(ignored);
  }

  int port() const { return port_; }

 private:
  Status Listen(const tcp::endpoint& endpoint) {
    const std::string where = Where(context_->options.host, endpoint.port());
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (error) return Fail(BindError(error, where));
    // Restarting at once must work although old connections linger; two listeners stay impossible.
    acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) acceptor_.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      error_code ignored;
      acceptor_.close(ignored);
      return Fail(BindError(error, where));
    }
    port_ = acceptor_.local_endpoint(error).port();
    if (error) return Fail(BindError(error, where));
    return {};
  }

  void Accept() {
    // Connections live on strands of their own: one slow peer holds up nobody.
    acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        if (context_->options.log) context_->options.log("cannot accept a connection: " + error.message());
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](error_code stopped) {
          if (!stopped) Accept();
        });
        return;
      }
      const bool full = context_->connections.load() >= context_->options.max_connections;
      auto session = std::make_shared<Session>(std::move(socket), context_);
      asio::post(session->executor(), [session, full] { full ? session->Reject() : session->Run(); });
      Accept();
    });
  }

  std::shared_ptr<SessionContext> context_;  // before io_: pending operations hold sessions that use it
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  int port_ = 0;
  std::mutex stop_mutex_;  // guards threads_
  std::vector<std::thread> threads_;
};

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  if (Status bound = impl->Bind(); !bound) return Fail(bound.error());
  impl->Start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Stop(); }
int Server::port() const { return impl_->port(); }
void Server::Stop() { impl_->Stop(); }

}  // namespace trainyard::http
