#include "tests/cluster/faults/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/cluster/faults/exchange.h"

namespace trainyard::faults {

Result<std::unique_ptr<FaultProxy>> FaultProxy::Start(const kube::Config& upstream) {
  if (auto probe = Upstream::Connect(upstream); !probe) return Fail(probe.error());
  std::unique_ptr<FaultProxy> proxy(new FaultProxy(upstream));
  if (Status status = proxy->Listen(); !status) return Fail(status.error());
  proxy->acceptor_ = std::thread([raw = proxy.get()] { raw->AcceptLoop(); });
  return proxy;
}

FaultProxy::~FaultProxy() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    CutLocked();
  }
  changed_.notify_all();
  if (acceptor_.joinable()) acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  if (listener_ >= 0) close(listener_);
}

std::string FaultProxy::url() const { return "http://127.0.0.1:" + std::to_string(port_); }

// Binds a new socket to our port (any at first); one that does not listen refuses connections and keeps the port.
Status FaultProxy::Listen() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || (!away_ && listen(fd, 256) != 0) ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    close(fd);
    return Fail(ErrorCode::kUnavailable, "the proxy of the tests cannot listen on port " + std::to_string(port_));
  }
  port_ = ntohs(address.sin_port);
  listener_ = fd;
  return {};
}

void FaultProxy::AcceptLoop() {
  for (;;) {
    int listener;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !away_; });
      if (stop_) return;
      listener = listener_;
    }
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    std::lock_guard lock(mutex_);
    if (fd < 0) continue;  // closed by Away() or the end; the loop's head decides
    if (stop_ || away_) {
      close(fd);
      continue;
    }
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    open_.insert(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void FaultProxy::Serve(int fd) {
  WireReader reader([fd](char* at, size_t size) -> size_t {
    const ssize_t count = recv(fd, at, size, 0);
    return count > 0 ? static_cast<size_t>(count) : 0;
  });
  bool open = true;
  while (open) {
    const std::optional<Head> head = reader.ReadHead();
    if (!head) break;
    reader.BeginBody(*head, /*response=*/false, false);
    const size_t first = head->first_line.find(' ');
    const size_t second = head->first_line.find(' ', first + 1);
    if (second == std::string::npos) break;
    const std::string method = head->first_line.substr(0, first);
    Call call = ParseCall(method, head->first_line.substr(first + 1, second - first - 1));
    call.when = std::chrono::steady_clock::now();
    call.user_agent = head->Header("User-Agent");
    call.body = reader.ReadWholeBody();
    bool unauthorized = false;
    {
      std::lock_guard lock(mutex_);
      unauthorized = !token_.empty() && head->Header("Authorization") != "Bearer " + token_;
    }
    const std::function<void(Exchange&)> act = unauthorized ? nullptr : Choose(call);
    const size_t index = Record(call);
    Exchange exchange(*this, index, fd, call, method, *head);
    if (unauthorized) {
      exchange.Answer(401, R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized",)"
                           R"("reason":"Unauthorized","code":401})");
    } else if (act) {
      act(exchange);
    } else {
      exchange.Relay();
    }
    open = !exchange.closed() && head->Header("Connection") != "close";
    Update(index, [](Call& one) { one.done = true; });
  }
  std::lock_guard lock(mutex_);
  open_.erase(fd);
  close(fd);
}

size_t FaultProxy::Record(Call call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  changed_.notify_all();
  return calls_.size() - 1;
}

void FaultProxy::Update(size_t index, const std::function<void(Call&)>& change) {
  std::lock_guard lock(mutex_);
  change(calls_[index]);
  changed_.notify_all();
}

std::function<void(Exchange&)> FaultProxy::Choose(Call& call) {
  std::lock_guard lock(mutex_);
  for (Script& script : scripts_) {
    const Fault& fault = script.fault;
    if (!fault.when(call)) continue;
    const int seen = script.seen++;
    if (seen < fault.after || (fault.count >= 0 && seen >= fault.after + fault.count)) continue;
    call.fault = fault.name;
    return fault.act;
  }
  return nullptr;
}

void FaultProxy::Add(Fault fault) {
  std::lock_guard lock(mutex_);
  scripts_.push_back({std::move(fault)});
}

void FaultProxy::Remove(const std::string& fault_name) {
  std::lock_guard lock(mutex_);
  scripts_.remove_if([&](const Script& script) { return script.fault.name == fault_name; });
}

bool FaultProxy::Removed(const std::string& fault_name) const {
  return std::none_of(scripts_.begin(), scripts_.end(), [&](const Script& s) { return s.fault.name == fault_name; });
}

void FaultProxy::ExpectToken(const std::string& token) {
  std::lock_guard lock(mutex_);
  token_ = token;
}

void FaultProxy::Away() {
  std::lock_guard lock(mutex_);
  if (std::exchange(away_, true)) return;
  shutdown(listener_, SHUT_RDWR);
  close(listener_);
  (void)Listen();
  CutLocked();
}

void FaultProxy::Back() {
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(away_, false)) return;
    listen(listener_, 256);
  }
  changed_.notify_all();
}

void FaultProxy::CutAll() {
  std::lock_guard lock(mutex_);
  CutLocked();
}

void FaultProxy::CutLocked() {
  const linger hard{1, 0};
  for (const int fd : open_) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    shutdown(fd, SHUT_RDWR);
  }
}

std::vector<Call> FaultProxy::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

size_t FaultProxy::Count(const std::function<bool(const Call&)>& which) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), which));
}

bool FaultProxy::Await(Milliseconds timeout, const std::function<bool(const std::vector<Call>&)>& condition) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return condition(calls_); });
}

bool FaultProxy::AwaitCount(Milliseconds timeout, size_t count, const std::function<bool(const Call&)>& which) const {
  return Await(timeout, [&](const std::vector<Call>& calls) {
    return static_cast<size_t>(std::count_if(calls.begin(), calls.end(), which)) >= count;
  });
}

std::string FaultProxy::Transcript(size_t last) const {
  std::lock_guard lock(mutex_);
  std::string text;
  const size_t from = calls_.size() > last ? calls_.size() - last : 0;
  for (size_t i = from; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    const auto ms = std::chrono::duration_cast<Milliseconds>(call.when - calls_[0].when).count();
    text += fmt::format("{:>8.3f} s {} {} -> {}{}{}\n", static_cast<double>(ms) / 1000, call.verb, call.target,
                        call.status, call.fault.empty() ? "" : " [" + call.fault + "]", call.done ? "" : " ...");
  }
  return text;
}

}  // namespace trainyard::faults
