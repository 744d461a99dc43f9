#include "operator/kube/client.h"

#include <algorithm>
#include <utility>

#include "operator/kube/api_error.h"

namespace trainyard::kube {
namespace {

using cluster::Kind;
using std::chrono::steady_clock;

// How much of a refusal's body we wait for and keep.
constexpr Milliseconds kRefusalPatience{5'000};
constexpr size_t kRefusalBytes = 1u << 20;
// However long a server asks to be left alone, it is asked again after this.
constexpr std::chrono::seconds kLongestPause{60};
// "Retry-After: 0" must not become a loop as fast as the server can refuse.
constexpr Milliseconds kShortestPause{100};

std::unique_ptr<http::Transport> MakeTransport(const Config& config, Milliseconds idle) {
  return http::NewCpprestTransport({config.tls, idle});
}

}  // namespace

std::string Call::What() const {
  std::string what = verb + " " + std::string(cluster::InfoOf(kind).plural);
  if (!subresource.empty()) what += "/" + subresource;
  if (!name.empty()) return what + " " + cluster::ToString({ns, name});
  return ns.empty() ? what : what + " in " + ns;
}

Client::Client(const Config& config, const KubeOptions& options)
    : config_(config),
      options_(options),
      token_(config.token, config.token_file),
      throttle_(options.qps, options.burst),
      api_(MakeTransport(config, options.request_timeout)),
      watch_(MakeTransport(config, options.watch_idle)),
      lease_(MakeTransport(config, options.lease_timeout)) {}

void Client::Stop() {
  throttle_.Stop();
  std::lock_guard lock(mutex_);
  stopped_ = true;
  wake_.notify_all();
  for (const auto& weak : streams_) {
    if (const auto stream = weak.lock()) stream->Stop();
  }
}

bool Client::Sleep(Time until) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_until(lock, until, [this] { return stopped_; });
}

void Client::KeepQuiet(const Call& call, std::chrono::seconds pause) {
  std::lock_guard lock(mutex_);
  Time& until = quiet_[{call.verb, call.kind}];
  until = std::max(until, steady_clock::now() + std::min(pause, kLongestPause));
}

Status Client::AwaitQuiet(const Call& call, Time deadline) {
  Time until;
  {
    std::lock_guard lock(mutex_);
    const auto found = quiet_.find({call.verb, call.kind});
    if (found == quiet_.end()) return {};
    until = found->second;
    if (until <= steady_clock::now()) {
      quiet_.erase(found);
      return {};
    }
  }
  if (until >= deadline) return Fail(ErrorCode::kUnavailable, call.What() + ": the server asked to wait (Retry-After)");
  return Sleep(until) ? Status() : Fail(ErrorCode::kUnavailable, call.What() + ": stopped");
}

http::Transport& Client::TransportOf(const Call& call, bool streams) {
  if (streams) return *watch_;
  return call.kind == Kind::kLease ? *lease_ : *api_;
}

Result<std::string> Client::Send(const Call& call) {
  const Result<std::string> path = ResourcePath(call.kind, call.ns, call.name, call.subresource, call.query);
  if (!path) return Fail(path.error());
  Result<Answer> answer = Run(call, *path, false);
  if (!answer) return Fail(answer.error());
  return std::move(answer->body);
}

Result<std::shared_ptr<http::Stream>> Client::Open(const Call& call) {
  const Result<std::string> path = ResourcePath(call.kind, call.ns, call.name, call.subresource, call.query);
  if (!path) return Fail(path.error());
  Result<Answer> answer = Run(call, *path, true);
  if (!answer) return Fail(answer.error());
  std::lock_guard lock(mutex_);
  if (stopped_) return Fail(ErrorCode::kUnavailable, call.What() + ": stopped");
  std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
  streams_.push_back(answer->stream);
  return answer->stream;
}

Result<std::string> Client::GetPath(const std::string& path) {
  Call call;
  call.verb = "get";
  Result<Answer> answer = Run(call, path, false);
  if (!answer) return Fail(answer.error());
  return std::move(answer->body);
}

Result<Client::Answer> Client::Run(const Call& call, const std::string& path, bool streams) {
  const bool lease = call.kind == Kind::kLease;
  const Time deadline = steady_clock::now() + (lease ? options_.lease_timeout : options_.request_timeout);
  bool read_again = call.method == "GET";  // once, after a broken connection
  bool log_in_again = true;                // once, after 401
  while (true) {
    // What one call was asked to wait for binds the next ones too, or a caller's own retries would come early.
    if (Status quiet = lease ? Status() : AwaitQuiet(call, deadline); !quiet) return Fail(quiet.error());
    // A lease that has to queue behind pods is a lease that is lost.
    const auto waited = lease ? std::chrono::duration<double>(0) : throttle_.Wait(deadline);
    if (!waited) return Fail(waited.error().Wrap(call.What()));
    const Result<std::string> token = token_.Get();
    if (!token) return Fail(token.error().Wrap(call.What()));
    http::Request request;
    request.method = call.method;
    request.url = config_.server + path;
    request.headers = {{"Accept", "application/json"}, {"User-Agent", options_.user_agent}};
    if (!call.body.empty()) request.headers["Content-Type"] = call.content_type;
    if (!token->empty()) request.headers["Authorization"] = "Bearer " + *token;
    request.body = call.body;
    request.timeout = std::chrono::ceil<Milliseconds>(deadline - steady_clock::now());
    if (request.timeout <= Milliseconds(0)) return Fail(ErrorCode::kDeadlineExceeded, call.What() + ": too late");

    Result<Answer> answer = Once(call, request, streams, waited->count());
    if (!answer) {
      const bool broken = answer.error().code == ErrorCode::kUnavailable;
      if (!broken || !std::exchange(read_again, false)) return Fail(answer.error().Wrap(call.What()));
      if (!Sleep(steady_clock::now())) return Fail(ErrorCode::kUnavailable, call.What() + ": stopped");
      continue;
    }
    const int status = answer->status;
    if (status >= 200 && status < 300) return answer;
    if (status == 401 && log_in_again && token_.Refused(*token)) {
      log_in_again = false;
      continue;
    }
    // The server has not touched the request, so that every verb may be sent again.
    const auto pause = RetryAfter(answer->headers);
    if ((status == 429 || status == 503) && pause) {
      if (!lease) KeepQuiet(call, *pause);
      const Time again = steady_clock::now() + std::max<Milliseconds>(*pause, kShortestPause);
      if (again < deadline) {
        if (Sleep(again)) continue;
        return Fail(ErrorCode::kUnavailable, call.What() + ": stopped");
      }
    }
    return Fail(ErrorOfAnswer(status, answer->body, call.What(), call.json_patch));
  }
}

Result<Client::Answer> Client::Once(const Call& call, const http::Request& request, bool streams, double throttled) {
  const Time start = steady_clock::now();
  http::Transport& transport = TransportOf(call, streams);
  Result<Answer> answer;
  if (streams) {
    answer = Streamed(transport, request);
  } else {
    Result<http::Response> response = transport.Send(request);
    if (response) {
      answer = Answer{response->status, std::move(response->headers), std::move(response->body), nullptr};
    } else {
      answer = Fail(response.error());
    }
  }
  if (options_.on_request) {
    RequestInfo info;
    info.verb = call.verb;
    info.resource = cluster::InfoOf(call.kind).plural;
    info.subresource = call.subresource;
    info.group = GroupOf(call.kind);
    info.ns = call.ns;
    info.code = answer ? answer->status : 0;
    info.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    info.throttled_seconds = throttled;
    options_.on_request(info);
  }
  return answer;
}

Result<Client::Answer> Client::Streamed(http::Transport& transport, const http::Request& request) {
  auto opened = transport.Open(request);
  if (!opened) return Fail(opened.error());
  Answer answer{(*opened)->status(), (*opened)->headers(), "", *std::move(opened)};
  if (answer.status == 200) return answer;
  const Time deadline = steady_clock::now() + std::min(kRefusalPatience, request.timeout);
  while (answer.body.size() < kRefusalBytes && steady_clock::now() < deadline) {
    Result<http::Chunk> chunk = answer.stream->Read(std::chrono::ceil<Milliseconds>(deadline - steady_clock::now()));
    if (!chunk) break;  // what came is all that there is to say
    answer.body += chunk->bytes;
    if (chunk->end) break;
  }
  answer.stream.reset();
  return answer;
}

}  // namespace trainyard::kube
