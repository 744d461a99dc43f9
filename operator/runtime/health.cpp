#include "operator/runtime/health.h"

#include <charconv>
#include <utility>

namespace trainyard::runtime {
namespace {

http::Response OnlyGet() {
  http::Response response = http::Response::Text(405, "only GET is served here\n");
  response.headers["Allow"] = "GET, HEAD";
  return response;
}

bool IsGet(const http::Request& request) { return request.method == "GET" || request.method == "HEAD"; }

}  // namespace

void Health::Set(Kind kind, const std::string& name, Check check) {
  std::lock_guard lock(mutex_);
  (kind == Kind::kLive ? live_ : ready_)[name] = std::move(check);
}

void Health::Remove(Kind kind, const std::string& name) {
  std::lock_guard lock(mutex_);
  (kind == Kind::kLive ? live_ : ready_).erase(name);
}

void Health::ShutDown() {
  std::lock_guard lock(mutex_);
  shutting_down_ = true;
}

std::string Health::Problems(Kind kind) const {
  std::lock_guard lock(mutex_);
  std::string problems;
  if (kind == Kind::kReady && shutting_down_) problems += "shutdown: this process is ending\n";
  for (const auto& [name, check] : kind == Kind::kLive ? live_ : ready_) {
    if (const Status status = check(); !status) problems += name + ": " + status.error().message + "\n";
  }
  return problems;
}

http::Handler ProbeHandler(const Health& health) {
  return [&health](const http::Request& request) {
    if (!IsGet(request)) return OnlyGet();
    const std::string path = request.Path();
    if (path != "/healthz" && path != "/readyz") return http::Response::Text(404, "known are /healthz and /readyz\n");
    const std::string problems = health.Problems(path == "/healthz" ? Health::Kind::kLive : Health::Kind::kReady);
    return problems.empty() ? http::Response::Text(200, "ok\n") : http::Response::Text(503, problems);
  };
}

http::Handler MetricsHandler(const Metrics& metrics) {
  return [&metrics](const http::Request& request) {
    if (!IsGet(request)) return OnlyGet();
    if (request.Path() != "/metrics") return http::Response::Text(404, "known is /metrics\n");
    http::Response response = http::Response::Text(200, metrics.Text());
    response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8";
    return response;
  };
}

Result<BindAddress> ParseBindAddress(const std::string& text) {
  if (text == "0") return BindAddress();
  const size_t colon = text.rfind(':');
  BindAddress address;
  constexpr int kMaxPort = 65535;
  bool good = colon != std::string::npos;
  if (good) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, address.port);
    good = begin != end && stop == end && error == std::errc() && address.port >= 0 && address.port <= kMaxPort;
    address.host = text.substr(0, colon);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    } else if (address.host.find(':') != std::string::npos) {
      good = false;  // IPv6 needs its brackets
    }
  }
  if (good) return address;
  return Fail(ErrorCode::kInvalidArgument,
              "\"" + text + "\" is no address to bind: write HOST:PORT, :PORT, [IPV6]:PORT, or 0 for none");
}

}  // namespace trainyard::runtime
