// Transport for servers that we do not trust: plain HTTP over Boost.Beast, everything bounded, a connection per call.
#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <utility>

#include "operator/http/transport.h"

namespace trainyard::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;

constexpr uint32_t kMaxHeaderBytes = 16u << 10;

struct Target {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string authority;
  std::string path;
};

Result<Target> Parse(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  Target target;
  std::string port = "80";
  if (url.starts_with(kScheme)) {
    const size_t slash = std::min(url.find_first_of("/?#", kScheme.size()), url.size());
    target.authority = url.substr(kScheme.size(), slash - kScheme.size());
    target.path = url.substr(slash);
    if (!target.path.starts_with('/')) target.path.insert(0, "/");
    const size_t bracket = target.authority.starts_with('[') ? target.authority.find(']') : 0;
    const size_t colon = bracket == std::string::npos ? bracket : target.authority.find(':', bracket);
    target.host = target.authority.substr(0, colon);
    if (colon != std::string::npos) port = target.authority.substr(colon + 1);
    if (target.host.starts_with('[') && target.host.ends_with(']')) {
      target.host = target.host.substr(1, target.host.size() - 2);
    }
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), target.port);
  if (target.host.empty() || error != std::errc() || end != port.data() + port.size() || target.port == 0 ||
      target.path.find_first_of(" \r\n") != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "'" + url + "' is not a URL of the form http://HOST[:PORT]/PATH");
  }
  return target;
}

// One request on one connection; everything runs in the caller's thread.
class Exchange {
 public:
  Exchange(const Request& request, const Target& target, size_t max_body_bytes)
      : request_(request), target_(target), stream_(io_), resolver_(io_) {
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(max_body_bytes);
  }

  Result<Response> Run() {
    stream_.expires_after(request_.timeout);
    beast::error_code not_numeric;
    const asio::ip::address address = asio::ip::make_address(target_.host, not_numeric);
    if (!not_numeric) {  // the usual case; a look-up would cost a thread
      stream_.async_connect(tcp::endpoint(address, target_.port),
                            [this](beast::error_code error) { Connected(error); });
    } else {
      resolver_.async_resolve(target_.host, std::to_string(target_.port), [this](auto error, const auto& endpoints) {
        if (error) return End(error);
        stream_.async_connect(endpoints, [this](beast::error_code failed, const tcp::endpoint&) { Connected(failed); });
      });
    }
    const bool finished = io_.run_for(request_.timeout) > 0 && io_.stopped();
    if (!finished || error_ == beast::error::timeout) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  target_.authority + " did not answer within " + std::to_string(request_.timeout.count()) + " ms");
    }
    if (error_) {
      const bool spoke = parser_.got_some();
      return Fail(ErrorCode::kUnavailable, (spoke ? "the answer of " + target_.authority + " cannot be read: "
                                                  : "cannot reach " + target_.authority + ": ") +
                                               error_.message());
    }
    Response response{static_cast<int>(parser_.get().result_int()), {}, std::move(parser_.get().body())};
    for (const auto& field : parser_.get()) {
      response.headers[std::string(field.name_string())] = std::string(field.value());
    }
    return response;
  }

 private:
  void Connected(beast::error_code failed) {
    if (failed) return End(failed);
    const auto verb = beast::http::string_to_verb(request_.method);
    message_ = {verb, target_.path, 11};
    message_.set(beast::http::field::host, target_.authority);
    for (const auto& [name, value] : request_.headers) message_.set(name, value);
    message_.set(beast::http::field::connection, "close");
    message_.body() = request_.body;
    message_.prepare_payload();
    beast::http::async_write(stream_, message_, [this](beast::error_code error, size_t) {
      if (error) return End(error);
      beast::http::async_read(stream_, buffer_, parser_, [this](beast::error_code failed, size_t) { End(failed); });
    });
  }
  void End(beast::error_code error) { error_ = error; }

  const Request& request_;
  const Target& target_;
  asio::io_context io_{1};
  beast::tcp_stream stream_;
  tcp::resolver resolver_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + (64u << 10)};
  beast::http::request<beast::http::string_body> message_;
  beast::http::response_parser<beast::http::string_body> parser_;
  beast::error_code error_;
};

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}
  Result<Response> Send(const Request& request) override {
    const Result<Target> target = Parse(request.url);
    if (!target) return Fail(target.error());
    if (beast::http::string_to_verb(request.method) == beast::http::verb::unknown) {
      return Fail(ErrorCode::kInvalidArgument, "'" + request.method + "' is not an HTTP method");
    }
    try {
      return Exchange(request, *target, max_body_bytes_).Run();
    } catch (const std::exception& failure) {
      return Fail(ErrorCode::kUnavailable, "cannot call " + target->authority + ": " + failure.what());
    }
  }

 private:
  const size_t max_body_bytes_;
};

}  // namespace

std::unique_ptr<Transport> NewPlainTransport(size_t max_body_bytes) {
  return std::make_unique<PlainTransport>(max_body_bytes);
}

}  // namespace trainyard::http
