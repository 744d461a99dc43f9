// A hash of parameters (trainer/contract/row_hash.h) as text. Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::engine {

// 16 lower-case hex digits.
std::string HashText(uint64_t hash);

}  // namespace trainyard::engine
