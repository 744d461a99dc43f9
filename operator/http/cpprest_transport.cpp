// The one file that knows cpprestsdk. It exists to be replaced: the library is archived (docs/adr).
#include <cpprest/http_client.h>
#include <pplx/threadpool.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/http/transport.h"

namespace trainyard::http {
namespace {

namespace web_http = web::http;
using web::http::client::http_client;
using web::http::client::http_client_config;

constexpr int kPoolThreads = 4;  // the library's default is 40
// The library's own timer counts idle time only, and is set per client, not per request. Ours is the deadline.
constexpr std::chrono::seconds kIdleLimit{600};

class CpprestTransport : public Transport {
 public:
  CpprestTransport() {
    static std::once_flag once;
    std::call_once(once, [] {
      try {
        crossplat::threadpool::initialize_with_threads(kPoolThreads);
      } catch (const std::exception&) {
        // Someone used the library first: its pool exists and serves as well.
      }
    });
  }

  Result<Response> Send(const Request& request) override {
    web::uri uri;
    try {
      uri = web::uri(request.url);
    } catch (const web::uri_exception& bad) {
      return Fail(ErrorCode::kInvalidArgument, "'" + request.url + "' is not a URL: " + bad.what());
    }
    if ((uri.scheme() != "http" && uri.scheme() != "https") || uri.host().empty()) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "'" + request.url + "' is not a URL that can be called: it must begin with http://HOST or https://HOST");
    }
    if (uri.host().front() == '[') {
      return Fail(ErrorCode::kInvalidArgument,
                  "'" + request.url + "': addresses of IPv6 cannot be called, use a host name");
    }
    if (request.method.empty() || request.method.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument, "'" + request.method + "' is not an HTTP method");
    }
    const std::string where = uri.host() + (uri.port() > 0 ? ":" + std::to_string(uri.port()) : "");
    try {
      return Exchange(request, uri, where);
    } catch (const std::exception& failure) {
      return Fail(ErrorCode::kInvalidArgument,
                  "cannot send " + request.method + " " + request.url + ": " + failure.what());
    }
  }

 private:
  Result<Response> Exchange(const Request& request, const web::uri& uri, const std::string& where) {
    web_http::http_request message(request.method);
    message.set_request_uri(uri.resource());
    for (const auto& [name, value] : request.headers) message.headers()[name] = value;
    if (!request.body.empty()) {
      message.set_body(std::vector<unsigned char>(request.body.begin(), request.body.end()));
      const std::string type = request.Header("Content-Type");
      if (!type.empty()) message.headers().set_content_type(type);
    }

    // The tasks own all they touch, since after a deadline they may end later than this call.
    auto promise = std::make_shared<std::promise<Result<Response>>>();
    std::future<Result<Response>> future = promise->get_future();
    pplx::cancellation_token_source cancel;
    auto answer = std::make_shared<Response>(Response{0, {}, {}});  // status 0: nothing came yet
    auto client = ClientOf(uri.authority());
    client->request(message, cancel.get_token())
        .then([answer](web_http::http_response response) {
          answer->status = response.status_code();
          for (const auto& [name, value] : response.headers()) answer->headers[name] = value;
          return response.extract_vector();
        })
        .then([answer, promise, where, client](pplx::task<std::vector<unsigned char>> body) {
          // The library's own messages mislead ("No such file or directory" for a hang-up): the stage is what counts.
          try {
            const std::vector<unsigned char> bytes = body.get();
            answer->body.assign(bytes.begin(), bytes.end());
            promise->set_value(*answer);
          } catch (const std::exception& failure) {
            promise->set_value(Fail(ErrorCode::kUnavailable,
                                    answer->status != 0
                                        ? "the answer of " + where + " broke off"
                                        : "cannot reach " + where + ": is it running there? (" + failure.what() + ")"));
          }
        });
    if (future.wait_for(request.timeout) == std::future_status::ready) return future.get();
    cancel.cancel();
    return Fail(ErrorCode::kDeadlineExceeded,
                where + " did not answer within " + std::to_string(request.timeout.count()) + " ms");
  }

  // One client per server, so that connections are kept alive.
  std::shared_ptr<http_client> ClientOf(const web::uri& authority) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& client = clients_[authority.to_string()];
    if (!client) {
      http_client_config config;
      config.set_timeout(kIdleLimit);
      client = std::make_shared<http_client>(authority, config);
    }
    return client;
  }

  std::mutex mutex_;  // guards clients_
  std::map<std::string, std::shared_ptr<http_client>> clients_;
};

}  // namespace

Result<std::unique_ptr<Stream>> Transport::Open(const Request& request) {
  return Fail(ErrorCode::kFailedPrecondition, "cannot stream the answer of " + request.url);
}

std::unique_ptr<Transport> NewCpprestTransport(TransportOptions /*options*/) {
  return std::make_unique<CpprestTransport>();
}

}  // namespace trainyard::http
