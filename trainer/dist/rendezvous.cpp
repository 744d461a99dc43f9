#include "trainer/dist/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace trainyard::dist {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Between two tries: short enough that a rank loses nothing worth having, long enough not to flood a name server.
constexpr milliseconds kRetryDelay{100};

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

milliseconds Left(SteadyTime deadline) {
  return std::max(milliseconds(0), duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

// Connects to one address; returns "" and the local address in `local`, or what went wrong.
std::string Connect(const addrinfo& address, SteadyTime deadline, std::string* local) {
  Fd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) {
    return std::strerror(errno);
  }
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      return std::strerror(errno);
    }
    pollfd wait{fd.get(), POLLOUT, 0};
    if (poll(&wait, 1, static_cast<int>(std::min(Left(deadline), milliseconds(5000)).count())) <= 0) {
      return "no answer";
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      return std::strerror(error);
    }
  }
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  char digits[NI_MAXHOST];
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&name), length, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "cannot tell the local address";
  }
  *local = digits;
  return "";
}

}  // namespace

Result<int> BindPort(int port, bool ipv6) {
  Fd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) {
    return Fail(ErrorCode::kUnavailable, std::string("cannot make a socket: ") + std::strerror(errno));
  }
  const int on = 1;
  // Connections of a process that just ended must not keep its successor out.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  int rc = ipv6 ? bind(fd.get(), reinterpret_cast<const sockaddr*>(&any6), sizeof any6)
                : bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  // Two sockets with SO_REUSEADDR may both bind; only the first may listen, so listen here to know.
  if (rc == 0) {
    rc = listen(fd.get(), SOMAXCONN);
  }
  if (rc != 0) {
    if (errno == EADDRINUSE) {
      return Fail(ErrorCode::kAlreadyExists, "port " + std::to_string(port) +
                                                 " (MASTER_PORT) is in use by another program on this machine; stop it "
                                                 "or choose another port");
    }
    return Fail(errno == EACCES ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
                "port " + std::to_string(port) + " (MASTER_PORT) cannot be opened: " + std::strerror(errno));
  }
  return fd.Release();
}

Result<std::string> Reach(const std::string& host, int port, SteadyTime deadline,
                          const std::function<void(const std::string&)>& say, milliseconds say_every) {
  const std::string service = std::to_string(port);
  SteadyTime next_word = std::chrono::steady_clock::now() + say_every;
  std::string obstacle;
  for (;;) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int rc = getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
    if (rc != 0) {
      obstacle = std::string("the name does not resolve: ") + gai_strerror(rc);
    }
    std::string local;
    for (const addrinfo* a = found; a != nullptr && local.empty(); a = a->ai_next) {
      obstacle = Connect(*a, deadline, &local);
    }
    if (found != nullptr) {
      freeaddrinfo(found);
    }
    if (!local.empty()) {
      return local;
    }
    if (Left(deadline) <= kRetryDelay) {
      return Fail(ErrorCode::kDeadlineExceeded, "rank 0 cannot be reached at " + host + ":" + service + ": " +
                                                    obstacle + "; see whether rank 0 runs and what it says");
    }
    if (say && std::chrono::steady_clock::now() >= next_word) {
      next_word += say_every;
      say("waiting for rank 0 at " + host + ":" + service + ": " + obstacle);
    }
    std::this_thread::sleep_for(kRetryDelay);
  }
}

}  // namespace trainyard::dist
