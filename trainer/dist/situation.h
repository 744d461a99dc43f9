// What a rank says when it is asked what it is in: one line of text on the wire. PURE.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/dist/call_log.h"

namespace trainyard::dist {

struct Situation {
  enum class Kind { kFailed, kCall, kOutside };
  Kind kind = Kind::kOutside;
  std::string text;  // kFailed: the reason; kCall: CallRecord::Text(); kOutside: that of the last call, "" for none
  // kCall:
  std::string group_id, group_name;
  int64_t sequence = -1;
  uint64_t signature = 0;
  int waiting_for = -1;
  int64_t milliseconds = 0;  // kCall: since the call began; kOutside: since the last one ended
};

// Tabs and line ends in texts become spaces.
std::string ToLine(const Situation& situation);
std::optional<Situation> FromLine(const std::string& line);

// "1.2 s"
std::string Seconds(int64_t milliseconds);
// "rank 2 has not come: ..." for a rank that others wait for.
std::string Tell(int rank, const Situation& situation);

}  // namespace trainyard::dist
