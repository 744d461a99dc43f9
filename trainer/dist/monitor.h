// Finds the guilty rank when a call does not end. Each rank runs a monitor beside its groups: it answers what this rank
// is in, and when a call takes long it asks the rank that the call waits for, and on from there along who waits for
// whom, to the one that keeps all others waiting: silent, gone, outside of any call, or in another call than its peers.
// The last of these cannot heal, so the call fails at once; of the others the verdict is kept for the message of a call
// that misses its deadline or loses its peer. A call may be given longer than its group's ordinary deadline because of
// slow disks; a process that is stopped answers nobody, slow disk or not, so that it ends the call once it has been
// silent through the ordinary deadline. A rank that fails tells all others why before it closes its connections.
//
// Nothing is sent as long as calls end within a quarter of their deadline and two seconds.
// Thread-safety: all methods may be called from any thread. Two threads run: one answers, one looks after the calls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/error.h"
#include "trainer/dist/call_log.h"
#include "trainer/dist/inquiry.h"

namespace trainyard::dist {

class Monitor {
 public:
  // Opens this rank's desk on all addresses of the machine. Error: kUnavailable.
  static Result<std::unique_ptr<Monitor>> Start(std::shared_ptr<CallLog> log, int rank, bool ipv6);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  CallLog& log() { return *log_; }
  // This rank's own desk, without a host.
  const Desk& desk() const { return desk_; }
  // The desks of all ranks of the world, index = rank. Before this nobody is asked.
  void Introduce(std::vector<Desk> desks);

  // Ends the calls of a group for good. `parted`: its ranks make different calls; else a rank has given up.
  using FailGroup = std::function<void(bool parted, const std::string& reason)>;
  // A group whose calls are looked after. `members`: world ranks, index = rank in the group. `fail` is called from the
  // monitor's thread, never after RemoveGroup has returned. `blind`: nobody can tell which rank a call of the group
  // waits for (GPUs talk to each other past the CPU), so all are asked.
  int AddGroup(std::string name, std::string id, std::vector<int> members, FailGroup fail, bool blind = false);
  void RemoveGroup(int group);

  // A call of `group` begins; returns its id for the log.
  uint64_t Begin(CallRecord call);

  // Why the call has not ended so far, as "rank 2 is silent: ...", world ranks; asks around unless a verdict of the
  // last moments is there. Blocks for up to `patience`.
  std::string Verdict(uint64_t call, std::chrono::milliseconds patience);
  // The same after the connection to `world_rank` was lost: first of all what that rank said when it left.
  std::string WhyLost(uint64_t call, int world_rank);

  // Those of `ranks` that do not answer, as "rank 2 is silent: ..."; "" when all do.
  std::string Missing(const std::vector<int>& ranks);

  // Tells all ranks why this one leaves; the first reason counts. Blocks until their kernels have it (200 ms at most).
  // `failed`: they end their own calls a moment later, whatever those wait for; else they keep it in mind for when they
  // find the connection closed.
  void Farewell(const std::string& reason, bool failed);

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    std::string id;
    std::vector<int> members;
    FailGroup fail;
    bool blind = false;
  };
  struct Found {
    std::string text;
    bool certain = false;  // cannot heal
    bool silent = false;   // the rank at the end of the chain does not answer
  };
  // How often a call under way was looked after, and how often of late the guilty rank was silent.
  struct Looks {
    int count = 0;
    int silent = 0;
  };

  struct Roll {
    std::string group_id;
    std::vector<int> members;     // world ranks
    std::vector<Answer> answers;  // index = member
  };

  Monitor(std::shared_ptr<CallLog> log, int rank, std::string key);
  std::string AnswerTo(const std::string& question);
  std::string Describe(const std::string& group_id);
  void Watch();
  void LookAfter(const CallRecord& call);
  void FailAll(bool parted, const std::string& reason);
  Found Investigate(const CallRecord& call, std::chrono::milliseconds patience);
  Found Survey(const CallRecord& call, std::chrono::milliseconds patience);
  Found Compare(const CallRecord& call, std::chrono::milliseconds patience);
  Roll AskGroup(int number, std::chrono::milliseconds patience);
  Answer AskRank(int rank, const std::string& group_id, std::chrono::milliseconds patience);
  std::optional<std::string> FarewellOf(int rank, std::chrono::milliseconds patience);

  const std::shared_ptr<CallLog> log_;
  const int rank_;
  Desk desk_;

  mutable std::mutex mutex_;  // guards everything below but the threads
  std::condition_variable changed_;
  std::vector<Desk> desks_;
  std::map<int, Group> groups_;
  std::map<int, std::string> farewells_;                           // by world rank
  std::string own_farewell_;                                       // not empty: this rank has failed or left
  std::optional<std::pair<Clock::time_point, std::string>> doom_;  // when to end all calls, and why
  std::map<uint64_t, std::string> verdicts_;                       // of calls under way
  std::map<uint64_t, Looks> looked_;                               // of calls under way
  Clock::time_point next_look_;
  bool failing_ = false;  // `fail` of groups is being called
  bool stopping_ = false;

  std::unique_ptr<InquiryServer> server_;
  std::thread watch_;
};

}  // namespace trainyard::dist
