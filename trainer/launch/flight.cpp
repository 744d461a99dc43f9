#include "trainer/launch/flight.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "operator/base/files.h"
#include "trainer/contract/flight_record.h"

namespace trainyard::launch {
namespace {

namespace flight = contract::flight;

template <size_t kSize>
std::string Text(const char (&from)[kSize]) {
  return std::string(from, strnlen(from, kSize));
}

std::string Join(const std::vector<int>& ranks) {
  std::string text = "rank ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string Position(const FlightRecord& record, const std::string& group, int64_t now_ns) {
  const auto found = record.groups.find(group);
  if (found == record.groups.end()) return "it has made no call";
  const FlightCall& call = found->second;
  char ago[32];
  std::snprintf(ago, sizeof ago, "%.1f s", static_cast<double>(now_ns - call.changed_ns) / 1e9);
  return "its last call is " + call.Text() + (call.done ? ", done " : ", under way for ") + ago +
         (call.done ? " ago" : "");
}

bool Stopped(const FlightRecord& record) { return record.process_state == 'T' || record.process_state == 't'; }

int64_t Sequence(const FlightRecord& record, const std::string& group) {
  const auto found = record.groups.find(group);
  return found == record.groups.end() ? -1 : found->second.sequence;
}

}  // namespace

std::string FlightCall::Text() const {
  return operation + (label.empty() ? "" : " '" + label + "'") + " (#" + std::to_string(sequence) + ", " +
         std::to_string(bytes) + " bytes)";
}

std::optional<FlightRecord> ReadFlightRecord(const std::string& file, int64_t pid) {
  const auto text = ReadFile(file);
  if (!text || text->size() != flight::kFileBytes) return std::nullopt;
  flight::Header header;
  std::memcpy(&header, text->data(), sizeof header);
  if (std::memcmp(header.magic, flight::kMagic, sizeof header.magic) != 0 || header.format != flight::kFormat ||
      header.entries != flight::kEntries || header.pid != pid) {
    return std::nullopt;
  }
  FlightRecord record;
  record.rank = header.rank;
  for (uint32_t i = 0; i < header.entries; ++i) {
    flight::Entry entry;
    std::memcpy(&entry, text->data() + sizeof header + i * sizeof entry, sizeof entry);
    // One that was being written is left out: the call before it tells as much.
    if (entry.phase == flight::kEmpty || entry.version % 2 != 0 || entry.sequence < 0) continue;
    FlightCall& newest = record.groups[Text(entry.group)];
    if (newest.call >= entry.call) continue;
    const bool done = entry.phase == flight::kDone;
    newest = {entry.call,  entry.sequence, Text(entry.operation), Text(entry.label),
              entry.bytes, done,           entry.waiting_for,     done ? entry.ended_ns : entry.started_ns};
  }
  return record;
}

char ProcessState(int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t end_of_name = line.rfind(')');  // the name may hold anything
  return end_of_name == std::string::npos || end_of_name + 2 >= line.size() ? '?' : line[end_of_name + 2];
}

std::string WhoIsBehind(const std::vector<FlightRecord>& records, int64_t now_ns) {
  // In the group that has come furthest apart; the world's in almost all jobs.
  std::string group;
  int64_t widest = -1;
  std::map<std::string, int> groups;
  for (const FlightRecord& record : records) {
    for (const auto& [name, call] : record.groups) ++groups[name];
  }
  for (const auto& [name, members] : groups) {
    int64_t low = INT64_MAX, high = -1;
    for (const FlightRecord& record : records) {
      if (name != "world" && !record.groups.contains(name)) continue;  // not a member
      low = std::min(low, Sequence(record, name));
      high = std::max(high, Sequence(record, name));
    }
    if (high - low > widest || (high - low == widest && name == "world")) {
      widest = high - low;
      group = name;
    }
  }
  if (group.empty()) return "";
  // A stopped process explains all others; else those who have come least far.
  int64_t least = INT64_MAX, furthest = -1;
  bool any_stopped = false;
  std::vector<const FlightRecord*> members_of_group;
  for (const FlightRecord& record : records) {
    if (group != "world" && !record.groups.contains(group)) continue;
    members_of_group.push_back(&record);
    least = std::min(least, Sequence(record, group));
    furthest = std::max(furthest, Sequence(record, group));
    any_stopped = any_stopped || Stopped(record);
  }
  std::vector<int> ahead;
  std::string where, text;
  for (const FlightRecord* record : members_of_group) {
    const int64_t sequence = Sequence(*record, group);
    if (any_stopped ? Stopped(*record) : sequence == least && least < furthest) {
      text += (text.empty() ? "" : "; ") + Join({record->rank}) +
              " is behind: " + (any_stopped ? "its process is stopped, " : "") + Position(*record, group, now_ns);
    } else if (sequence == furthest && sequence >= 0) {
      ahead.push_back(record->rank);
      where = record->groups.at(group).Text();
    }
  }
  if (text.empty() || ahead.empty()) return text;
  return text + "; " + Join(ahead) + (ahead.size() == 1 ? " is in " : " are in ") + where;
}

}  // namespace trainyard::launch
