// One of several operators leads: it holds a Lease and renews it. The rules of client-go, with two differences: after a
// loss it campaigns again in process, and it knows by the clock alone when it must have stopped writing. Whether
// another holder's lease has expired is judged by how long we have seen the record unchanged, never by the times in it.
// IsLeader() is true only until `renew_deadline` after the last successful renewal was SENT; another may take over only
// `lease_duration` after it saw that renewal, so no write is begun once another's may begin.
// Thread-safety: all members from any thread; Start() once. Tick() and Release() are the steps of the thread: for tests
// that do not Start().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/error.h"
#include "operator/cluster/cluster.h"
#include "operator/runtime/log_gate.h"
#include "operator/runtime/rate_limit.h"

namespace trainyard::runtime {

struct LeaderElectionOptions {
  std::string ns;        // of the Lease
  std::string name;      // of the Lease
  std::string identity;  // of this process, unlike that of any other
  Milliseconds lease_duration{15'000};
  Milliseconds renew_deadline{10'000};
  Milliseconds retry_period{2'000};
};

// Whether the three times make sense together. Error: kInvalidArgument.
Status CheckLeaderElection(const LeaderElectionOptions& options);

class LeaderElector {
 public:
  using Now = std::function<SteadyTime()>;
  // `cluster` should give up a call well before the renew deadline. `clock` writes the times that people read, `now`
  // decides. Equal seeds retry in step.
  LeaderElector(
      cluster::Cluster& cluster, LeaderElectionOptions options, const Clock& clock, uint64_t seed,
      Now now = [] { return std::chrono::steady_clock::now(); });
  ~LeaderElector();  // Stop()

  // Campaigns and renews in a thread of its own.
  void Start();
  // Ends the campaign and gives the lease back, so that another need not wait. Whoever writes must have stopped.
  void Stop();

  bool IsLeader() const;
  // The same, of one term: a late write of an earlier term is refused although this process leads again.
  bool Leads(uint64_t term) const;
  // Waits until this process leads; returns the number of the term, 1 for the first. nullopt: stop requested.
  std::optional<uint64_t> AwaitTerm(std::stop_token stop);
  // Waits until that term has ended or stop is requested.
  void AwaitEnd(uint64_t term, std::stop_token stop);
  // Why the last try failed; empty: it did not. To lead is not needed for that.
  std::string problem() const;
  // Whether the campaign goes on: no try has begun for long means that its thread is stuck.
  Status Progress() const;

  // Tries once to take or renew the lease; returns when to try again.
  Milliseconds Tick();
  void Release();

 private:
  // True: the lease is ours. False: another holds it, or was faster.
  Result<bool> TryHold();
  Result<bool> Write(nlohmann::json lease, bool take);
  void Observe(const nlohmann::json& lease);
  // How long another's lease must stay as it is before it is taken: as long as ours or as it says itself, whichever is
  // more, but no longer than ten of ours.
  Milliseconds PatienceWith(const nlohmann::json& lease) const;
  void TellWait(const std::string& holder, Milliseconds patience);
  bool LeadsLocked() const;
  void Run(std::stop_token stop);

  cluster::Cluster& cluster_;
  const LeaderElectionOptions options_;
  const Clock& clock_;
  const Now now_;
  std::minstd_rand random_;  // of the thread
  LogGate gate_;

  // Of the thread: the record as last seen, and since when it has been so.
  nlohmann::json observed_;
  SteadyTime observed_at_{};

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable_any changed_;
  bool held_ = false;
  uint64_t term_ = 0;        // of the last time the lease was taken
  SteadyTime renewed_at_{};  // when the last successful renewal was sent
  SteadyTime tried_at_{};    // when the last try began
  std::string problem_ = "the lease has not been read yet";
  std::jthread thread_;
};

}  // namespace trainyard::runtime
