#include "tests/cluster/faults/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

namespace trainyard::faults {
namespace {

constexpr int kSliceMs = 20;  // how soon a hanging exchange notices that it is over

}  // namespace

Exchange::Exchange(FaultProxy& proxy, size_t index, int client, Call call, std::string method, Head head)
    : proxy_(proxy),
      index_(index),
      client_(client),
      call_(std::move(call)),
      method_(std::move(method)),
      head_(std::move(head)) {}

std::optional<Head> Exchange::Forward(const std::string& target) {
  auto upstream = Upstream::Connect(proxy_.upstream_);
  if (!upstream) return std::nullopt;
  upstream_ = *std::move(upstream);
  std::string request = method_ + " " + (target.empty() ? call_.target : target) + " HTTP/1.1\r\nHost: apiserver\r\n";
  for (const char* kept : {"Accept", "Content-Type", "User-Agent"}) {
    if (!head_.Header(kept).empty()) request += std::string(kept) + ": " + head_.Header(kept) + "\r\n";
  }
  request += fmt::format("Connection: close\r\nContent-Length: {}\r\n\r\n", call_.body.size());
  if (!upstream_->Write(request + call_.body)) return std::nullopt;
  reader_.emplace([this](char* at, size_t size) -> size_t {
    // The API server may be silent for minutes on a watch; the operator's hanging up must be seen meanwhile.
    while (!upstream_->Pending()) {
      pollfd waiting[2] = {{upstream_->fd(), POLLIN, 0}, {client_, POLLIN | POLLRDHUP, 0}};
      poll(waiting, 2, kSliceMs);
      if (waiting[0].revents != 0) break;
      if (ClientGone()) return 0;
    }
    return upstream_->Read(at, size);
  });
  std::optional<Head> answer = reader_->ReadHead();
  if (!answer) return std::nullopt;
  const int status = answer->StatusCode();
  reader_->BeginBody(*answer, /*response=*/true, status == 204 || status == 304);
  proxy_.Update(index_, [&](Call& call) { call.upstream = status; });
  return answer;
}

std::optional<std::string> Exchange::Next() { return reader_ ? reader_->ReadBody() : std::nullopt; }
std::string Exchange::Rest() { return reader_ ? reader_->ReadWholeBody() : ""; }

bool Exchange::ClientGone() {
  {
    std::lock_guard lock(proxy_.mutex_);
    if (proxy_.stop_) closed_ = true;
  }
  char byte;
  const ssize_t count = recv(client_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) closed_ = true;
  return closed_;
}

bool Exchange::SendRaw(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size() && !closed_;) {
    const ssize_t count = send(client_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) closed_ = true;
    sent += count > 0 ? static_cast<size_t>(count) : 0;
  }
  return !closed_;
}

bool Exchange::SendHead(int status, const http::Headers& headers, std::optional<size_t> length) {
  proxy_.Update(index_, [&](Call& call) { call.status = status; });
  std::string head = fmt::format("HTTP/1.1 {} Answer\r\n", status);
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  head += length ? fmt::format("Content-Length: {}\r\n\r\n", *length) : "Transfer-Encoding: chunked\r\n\r\n";
  return SendRaw(head);
}

bool Exchange::SendChunk(const std::string& bytes) {
  return bytes.empty() ? !closed_ : SendRaw(fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n");
}

bool Exchange::EndChunks() { return SendRaw("0\r\n\r\n"); }

void Exchange::Answer(int status, const std::string& body, http::Headers headers) {
  if (!headers.contains("Content-Type")) headers["Content-Type"] = "application/json";
  if (SendHead(status, headers, body.size())) SendRaw(body);
}

void Exchange::Relay() {
  const std::optional<Head> answer = Forward();
  if (!answer) return closed_ ? void() : Reset();
  http::Headers headers;
  for (const char* kept : {"Content-Type", "Retry-After"}) {
    if (!answer->Header(kept).empty()) headers[kept] = answer->Header(kept);
  }
  if (call_.verb != "watch") return Answer(answer->StatusCode(), Rest(), headers);
  if (!SendHead(answer->StatusCode(), headers, std::nullopt)) return;
  while (const std::optional<std::string> piece = Next()) {
    if (!SendChunk(*piece)) return;
  }
  if (reader_->broken()) return Reset();
  EndChunks();
}

void Exchange::Reset() {
  const linger hard{1, 0};
  setsockopt(client_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  closed_ = true;
}

void Exchange::Hang() {
  pollfd waiting{client_, POLLIN | POLLRDHUP, 0};
  while (!ClientGone() && !Removed()) {
    waiting.revents = 0;
    poll(&waiting, 1, kSliceMs);
  }
  closed_ = true;
}

bool Exchange::Removed() const {
  std::lock_guard lock(proxy_.mutex_);
  return proxy_.Removed(call_.fault);
}

}  // namespace trainyard::faults
