// Reads the flight records of this pod's ranks (trainer/contract/flight_record.h) and tells who was behind.
// Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::launch {

// The newest call of one group.
struct FlightCall {
  uint64_t call = 0;      // place among all calls of the rank
  int64_t sequence = -1;  // among the collectives of the group
  std::string operation, label;
  int64_t bytes = 0;
  bool done = false;
  int waiting_for = -1;
  int64_t changed_ns = 0;  // when it began or, done, ended; since the Unix epoch

  // "AllGather 'gather block.3' (#41, 4096 bytes)"
  std::string Text() const;
};

struct FlightRecord {
  int rank = 0;
  char process_state = '?';                  // of /proc/PID/stat: T is stopped; ? is gone or unknown
  std::map<std::string, FlightCall> groups;  // newest collective of each group
};

// Nothing where there is no whole record of process `pid`.
std::optional<FlightRecord> ReadFlightRecord(const std::string& file, int64_t pid);

// The letter of /proc/PID/stat, or '?'.
char ProcessState(int64_t pid);

// "rank 1 is behind: it is stopped; its last call is AllGather ... (done 3.2 s ago), rank 0, 2 are in AllReduce ...";
// "" when the records do not tell. PURE. `now_ns`: since the Unix epoch.
std::string WhoIsBehind(const std::vector<FlightRecord>& records, int64_t now_ns);

}  // namespace trainyard::launch
