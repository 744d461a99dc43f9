#include "operator/base/ids.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace trainyard {

std::string NewUid() {
  std::array<unsigned char, 16> b{};
  if (getrandom(b.data(), b.size(), 0) != static_cast<ssize_t>(b.size())) std::abort();
  b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
  b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
  char text[37];
  std::snprintf(text, sizeof(text), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

uint64_t StableHash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

std::string ShortUid(std::string_view uid) {
  char text[5];
  std::snprintf(text, sizeof(text), "%04x", static_cast<unsigned>(StableHash(uid) & 0xffff));
  return text;
}

}  // namespace trainyard
