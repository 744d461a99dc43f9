#include "trainer/engine/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainyard::engine {

uint64_t HashRows(std::string_view name, int64_t first_row, int64_t rows, int64_t row_bytes, const void* data) {
  const uint64_t name_seed = XXH3_64bits(name.data(), name.size());
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = first_row + r;
    const uint64_t seed = XXH3_64bits_withSeed(&row, sizeof(row), name_seed);
    sum += XXH3_64bits_withSeed(bytes + r * row_bytes, static_cast<size_t>(row_bytes), seed);
  }
  return sum;
}

std::string HashText(uint64_t hash) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

}  // namespace trainyard::engine
