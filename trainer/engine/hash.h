// A fingerprint of parameters that can be summed in any order and split. Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::engine {

// Sum modulo 2^64, over rows first_row .. first_row+rows-1 that lie one after another at `data`, of
// XXH3-64(row bytes, seed of (name, row)).
uint64_t HashRows(std::string_view name, int64_t first_row, int64_t rows, int64_t row_bytes, const void* data);

// 16 lower-case hex digits.
std::string HashText(uint64_t hash);

}  // namespace trainyard::engine
