// A fingerprint of tensors that can be summed in any order and split by rows: of what ranks hold, and of the files that
// a model lies in. Header only, on xxHash. Thread-safety: pure function.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <string_view>

namespace trainyard::contract {

// Sum modulo 2^64, over rows (of dimension 0) first_row .. first_row+rows-1 of a tensor, which lie one after another at
// `data`, of XXH3-64(bytes of the row, seed = XXH3-64(row as 8 bytes, seed = XXH3-64(name))).
inline uint64_t HashRows(std::string_view name, int64_t first_row, int64_t rows, int64_t row_bytes, const void* data) {
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

}  // namespace trainyard::contract
