// Transport over cpprestsdk. The files cpprest_* alone know that library. They exist to be replaced: it is archived
// (docs/adr).
#include <cpprest/http_client.h>
#include <pplx/threadpool.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/http/cpprest_calls.h"
#include "operator/http/cpprest_stream.h"
#include "operator/http/cpprest_tls.h"
#include "operator/http/transport.h"

namespace trainyard::http {
namespace {

namespace web_http = web::http;
using web::http::client::http_client;
using web::http::client::http_client_config;

constexpr int kPoolThreads = 4;  // the library's default is 40
// How long the end of a transport waits for calls that it has cancelled.
constexpr std::chrono::seconds kFarewell{5};

// What the caller waits for; owned by the tasks, since after a deadline they may end later than the call.
template <typename T>
struct Outcome {
  std::promise<Result<T>> promise;
  std::shared_ptr<CpprestCalls::Call> call;
  int status = 0;  // 0: nothing came yet
  Headers headers;
};

class CpprestTransport : public Transport {
 public:
  explicit CpprestTransport(TransportOptions options)
      : idle_timeout_(options.idle_timeout), tls_(std::make_shared<CpprestTls>(std::move(options.tls))) {
    static std::once_flag once;
    std::call_once(once, [] {
      try {
        crossplat::threadpool::initialize_with_threads(kPoolThreads);
      } catch (const std::exception&) {
        // Someone used the library first: its pool exists and serves as well.
      }
    });
  }
  ~CpprestTransport() override {
    clients_.clear();
    calls_->CancelAndWait(kFarewell);
  }

  Result<Response> Send(const Request& request) override {
    return Exchange<Response>(request, [](const std::shared_ptr<Outcome<Response>>& outcome, const std::string&,
                                          const web_http::http_response& response) {
      return response.extract_vector().then([outcome](std::vector<unsigned char> bytes) {
        outcome->promise.set_value(
            Response{outcome->status, outcome->headers, std::string(bytes.begin(), bytes.end())});
      });
    });
  }

  Result<std::unique_ptr<Stream>> Open(const Request& request) override {
    using Opened = std::unique_ptr<Stream>;
    return Exchange<Opened>(request, [](const std::shared_ptr<Outcome<Opened>>& outcome, const std::string& where,
                                        const web_http::http_response& response) {
      outcome->promise.set_value(NewCpprestStream(outcome->call, response, where));
      return pplx::task_from_result();
    });
  }

 private:
  // Sends, and hands the response to `take`, which sets the outcome's promise in the task that it returns.
  template <typename T, typename Take>
  Result<T> Exchange(const Request& request, Take take) {
    const Result<web::uri> uri = Check(request);
    if (!uri) return Fail(uri.error());
    const std::string where = uri->host() + (uri->port() > 0 ? ":" + std::to_string(uri->port()) : "");
    auto outcome = std::make_shared<Outcome<T>>();
    std::future<Result<T>> future = outcome->promise.get_future();
    pplx::cancellation_token_source cancel;
    try {
      outcome->call = calls_->Begin(ClientOf(uri->authority()));
      cancel = outcome->call->cancel;
      outcome->call->client->request(Message(request, *uri), cancel.get_token())
          .then([outcome, where, take](web_http::http_response response) {
            outcome->status = response.status_code();
            for (const auto& [name, value] : response.headers()) outcome->headers[name] = value;
            return take(outcome, where, response);
          })
          .then([outcome, where, tls = tls_](pplx::task<void> done) {
            try {
              done.get();
            } catch (const std::exception& failure) {
              outcome->promise.set_value(Fail(Failed(failure.what(), outcome->status, where, *tls)));
            }
            outcome->call.reset();
          });
    } catch (const std::exception& failure) {
      return Fail(ErrorCode::kInvalidArgument,
                  "cannot send " + request.method + " " + request.url + ": " + failure.what());
    }
    if (future.wait_for(request.timeout) == std::future_status::ready) return future.get();
    cancel.cancel();
    return Fail(ErrorCode::kDeadlineExceeded,
                where + " did not answer within " + std::to_string(request.timeout.count()) + " ms");
  }

  static Result<web::uri> Check(const Request& request) {
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
    return uri;
  }

  web_http::http_request Message(const Request& request, const web::uri& uri) const {
    web_http::http_request message(request.method);
    message.set_request_uri(uri.resource());
    for (const auto& [name, value] : request.headers) message.headers()[name] = value;
    // The library checks the certificate against this header where it is given.
    if (!tls_->options().server_name.empty()) message.headers()["Host"] = tls_->options().server_name;
    if (!request.body.empty()) {
      message.set_body(std::vector<unsigned char>(request.body.begin(), request.body.end()));
      const std::string type = request.Header("Content-Type");
      if (!type.empty()) message.headers().set_content_type(type);
    }
    return message;
  }

  // The library's own messages mislead ("No such file or directory" for a hang-up): the stage is what counts.
  static Error Failed(const std::string& said, int status, const std::string& where, const CpprestTls& tls) {
    if (status != 0) return {ErrorCode::kUnavailable, "the answer of " + where + " broke off"};
    if (said.find("SSL") != std::string::npos) {
      const std::string problem = tls.problem();
      return {ErrorCode::kUnavailable,
              "no secure connection to " + where + ": " +
                  (problem.empty() ? "its certificate is not signed by the authority that we trust, is not for that "
                                     "name, or it refuses ours"
                                   : problem)};
    }
    return {ErrorCode::kUnavailable, "cannot reach " + where + ": is it running there? (" + said + ")"};
  }

  // One client per server, so that connections are kept alive.
  std::shared_ptr<http_client> ClientOf(const web::uri& authority) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& client = clients_[authority.to_string()];
    if (!client) {
      http_client_config config;
      config.set_timeout(idle_timeout_);
      config.set_max_redirects(0);  // an answer as any other: no token goes to where a server points
      config.set_validate_certificates(!tls_->options().insecure_skip_verify);
      config.set_ssl_context_callback([tls = tls_](boost::asio::ssl::context& context) { tls->Configure(context); });
      client = std::make_shared<http_client>(authority, config);
    }
    return client;
  }

  const std::chrono::milliseconds idle_timeout_;
  const std::shared_ptr<CpprestTls> tls_;  // shared with connections
  const std::shared_ptr<CpprestCalls> calls_ = std::make_shared<CpprestCalls>();
  std::mutex mutex_;  // guards clients_
  std::map<std::string, std::shared_ptr<http_client>> clients_;
};

}  // namespace

Result<std::unique_ptr<Stream>> Transport::Open(const Request& request) {
  return Fail(ErrorCode::kFailedPrecondition, "this transport cannot stream the answer of " + request.url);
}

std::unique_ptr<Transport> NewCpprestTransport(TransportOptions options) {
  return std::make_unique<CpprestTransport>(std::move(options));
}

}  // namespace trainyard::http
