#include "trainer/dist/peer_names.h"

#include <dlfcn.h>
#include <netdb.h>

namespace {
using GetNameInfo = int(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
}  // namespace

// Found before glibc's by every library, since the program comes first in the order in which names are looked up.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host, socklen_t host_length, char* service,
                           socklen_t service_length, int flags) {
  static auto* const next = reinterpret_cast<GetNameInfo*>(dlsym(RTLD_NEXT, "getnameinfo"));
  if (next == nullptr) {
    return EAI_SYSTEM;
  }
  return next(address, length, host, host_length, service, service_length, flags | NI_NUMERICHOST);
}

namespace trainyard::dist {

bool PeersAreNamedByAddress() { return dlsym(RTLD_DEFAULT, "getnameinfo") == reinterpret_cast<void*>(&::getnameinfo); }

}  // namespace trainyard::dist
