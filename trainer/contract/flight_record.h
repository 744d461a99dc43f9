// The flight record: the last calls of one rank to its peers, in a file of the run directory that the rank keeps
// mapped. It is whole after any end of the process, so that a launcher (and a person with `od`) sees who was behind and
// in what. Little-endian, fixed size: one Header, then kEntries entries as a ring. Retold in docs/contract.md.
// Thread-safety: plain data. The rank writes while others read: an entry whose `version` is odd, or changes while it is
// read, is being written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::contract::flight {

inline constexpr std::string_view kFilePrefix = "flight.";  // "flight.3" is that of rank 3
inline constexpr char kMagic[8] = {'T', 'Y', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kFormat = 1;
inline constexpr uint32_t kEntries = 256;  // a power of two

enum Phase : uint32_t { kEmpty = 0, kUnderWay = 1, kDone = 2 };

struct Header {
  char magic[8];
  uint32_t format;
  uint32_t entries;
  int32_t rank;
  int32_t world;
  int64_t pid;
  uint64_t calls;  // made so far; call n (from 1) is entry n % entries
  char reserved[24];
};

struct Entry {
  uint64_t version;     // even: whole
  uint64_t call;        // n of Header::calls
  int64_t sequence;     // place among the collectives of its group, from 0; -1: a message between two ranks
  int64_t bytes;        // payload
  int64_t started_ns;   // since the Unix epoch
  int64_t ended_ns;     // 0: under way
  uint32_t phase;       // Phase
  int32_t waiting_for;  // rank whose message it waits for, or -1
  char operation[16];   // "AllGather"; texts end with a zero byte and are cut to fit
  char group[24];       // "world"
  char label[48];       // "gather block.3"
};

static_assert(sizeof(Header) == 64 && sizeof(Entry) == 144, "a format of files");
inline constexpr uint64_t kFileBytes = sizeof(Header) + kEntries * sizeof(Entry);

inline std::string FileName(int rank) { return std::string(kFilePrefix) + std::to_string(rank); }

}  // namespace trainyard::contract::flight
