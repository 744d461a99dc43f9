// Identities. Thread-safety: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard {

// A random version 4 UUID from the operating system's entropy.
std::string NewUid();
// FNV-1a 64: a stable hash for names and sharding of keys, never for integrity.
uint64_t StableHash(std::string_view text);
// Four hex digits that stand for a UID in pod names.
std::string ShortUid(std::string_view uid);

}  // namespace trainyard
