// A TCP server whose answers are written by the test byte for byte: streams that stall, break off or lie.
// Thread-safety: the script runs on a thread per connection; everything else belongs to the test's thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace trainyard::http {

class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}
  // One request with its body; "" when the client has gone.
  std::string ReadRequest() {
    std::string text;
    size_t wanted = std::string::npos;
    while (text.size() < wanted) {
      char buffer[4096];
      const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
      if (got <= 0) return {};
      text.append(buffer, static_cast<size_t>(got));
      const size_t end = text.find("\r\n\r\n");
      if (wanted != std::string::npos || end == std::string::npos) continue;
      size_t length = 0;
      const size_t header = text.find("Content-Length: ");
      if (header != std::string::npos && header < end) length = std::stoul(text.substr(header + 16));
      wanted = end + 4 + length;
    }
    return text;
  }
  void Write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void StartChunks() {
    Write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  void Chunk(const std::string& bytes) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    Write(size + bytes + "\r\n");
  }
  void EndChunks() { Write("0\r\n\r\n"); }
  void Answer(const std::string& status, const std::string& headers, const std::string& body) {
    Write("HTTP/1.1 " + status + "\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
          body);
  }
  // Returns when the client has closed, or sent something more.
  void AwaitClient() {
    char byte = 0;
    recv(fd_, &byte, 1, 0);
  }

 private:
  const int fd_;
};

class RawServer {
 public:
  using Script = std::function<void(RawConnection&, int connection)>;  // connections are counted from 0

  explicit RawServer(Script script) : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("cannot listen on the loopback interface");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~RawServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      std::lock_guard lock(mutex_);
      for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int fd : fds_) close(fd);
    close(listener_);
  }
  int port() const { return port_; }
  std::string url(const std::string& target = "") const { return "http://127.0.0.1:" + std::to_string(port_) + target; }

 private:
  void Accept() {
    for (int n = 0;; ++n) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      threads_.emplace_back([this, fd, n] {
        RawConnection connection(fd);
        script_(connection, n);
        shutdown(fd, SHUT_RDWR);
      });
    }
  }

  const Script script_;
  const int listener_;
  int port_ = 0;
  std::mutex mutex_;  // guards fds_ and threads_ while the acceptor runs
  std::list<int> fds_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace trainyard::http
