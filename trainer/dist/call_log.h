// What this rank is doing with its peers: the calls under way in all its groups and the last one done in each. The
// monitor answers its peers' questions from it, and a mapped file carries it past the end of the process
// (trainer/contract/flight_record.h). A call costs two short critical sections and no system call.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/contract/flight_record.h"

namespace trainyard::dist {

struct CallRecord {
  uint64_t id = 0;         // place among all calls of this process, from 1; 0: none
  int group = 0;           // of CallLog::AddGroup
  int64_t sequence = -1;   // place among the collectives of the group, from 0; -1: Send, Recv
  uint64_t signature = 0;  // what has to be the same on all ranks of a collective: operation, bytes, root, sum, label
  std::string operation;   // CallName()
  std::string label;
  int64_t bytes = 0;
  std::chrono::steady_clock::time_point start;
  std::chrono::milliseconds allowed{0};
  std::chrono::milliseconds ordinary{0};  // what calls of the group are allowed if nothing else is said
  int waiting_for = -1;                   // world rank whose message it waits for; -1: none

  // "AllGather 'gather block.3' (#41, 4096 bytes)"
  std::string Text() const;
};

class CallLog {
 public:
  // Keeps the record in memory alone.
  CallLog();
  // Keeps it in `file` as well; an older file is replaced. Error: kUnavailable names the file.
  static Result<std::shared_ptr<CallLog>> Open(const std::string& file, int rank, int world);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // `name` for people, `id` the same on all ranks of the group and different from other groups'.
  int AddGroup(std::string name, std::string id);
  // The group of `id`, or -1.
  int FindGroup(const std::string& id) const;
  std::string GroupName(int group) const;
  std::string GroupId(int group) const;
  // Calls of `group` are made beside those that the rank's work consists of: Current(-1) passes over them.
  void SetBackground(int group);

  // Fills in id and start, and returns the id.
  uint64_t Begin(CallRecord call);
  void WaitsFor(uint64_t id, int world_rank);
  void End(uint64_t id);

  // The oldest collective under way in `group`, or the oldest call in all groups but those in the background with -1.
  std::optional<CallRecord> Current(int group = -1) const;
  std::optional<CallRecord> Find(uint64_t id) const;
  // The last call that ended in `group`, and when it did.
  std::optional<std::pair<CallRecord, std::chrono::steady_clock::time_point>> Last(int group) const;
  // All calls under way, oldest first.
  std::vector<CallRecord> UnderWay() const;

 private:
  void Write(const CallRecord& call, contract::flight::Phase phase);

  struct Group {
    std::string name, id;
    CallRecord last;
    std::chrono::steady_clock::time_point ended;
    bool background = false;
  };
  mutable std::mutex mutex_;  // guards everything below
  std::vector<Group> groups_;
  std::map<uint64_t, CallRecord> under_way_;
  uint64_t calls_ = 0;
  contract::flight::Header* header_ = nullptr;  // mapped; null: no file
  contract::flight::Entry* entries_ = nullptr;
};

}  // namespace trainyard::dist
