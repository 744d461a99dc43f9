#include "operator/local/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

namespace trainyard::local {
namespace {

constexpr int kFirst = 20'000;
constexpr int kCount = 12'000;  // up to 32,000; outgoing connections start at 32,768

bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

}  // namespace

int FreePort() {
  // Different programs start at different places.
  static std::atomic<unsigned> next{static_cast<unsigned>(getpid()) * 37u};
  for (int tries = 0; tries < kCount; ++tries) {
    const int port = kFirst + static_cast<int>(next++ % kCount);
    if (IsFree(port)) return port;
  }
  return 0;
}

}  // namespace trainyard::local
