#include "trainer/engine/hash.h"

namespace trainyard::engine {

std::string HashText(uint64_t hash) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

}  // namespace trainyard::engine
