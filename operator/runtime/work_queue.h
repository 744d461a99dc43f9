// The work queue of Kubernetes controllers (client-go's semantics): a key is handed to one worker at a time; a key that
// is added while it is being worked on comes again after Done(); a key added twice before that comes once. Delayed adds
// wait in a heap, failed keys back off. Thread-safety: all members from any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "operator/runtime/rate_limit.h"

namespace trainyard::runtime {

struct WorkQueueOptions {
  RateLimitOptions rate_limit;
  // Tests move time by hand and then call Wake().
  std::function<SteadyTime()> now = [] { return std::chrono::steady_clock::now(); };
  // For metrics; any may be empty. Called with the queue's lock held.
  std::function<void()> on_add;
  std::function<void()> on_retry;
  std::function<void(double seconds)> on_wait;  // from the adding of a key to its taking
};

class WorkQueue {
 public:
  explicit WorkQueue(WorkQueueOptions options = {});

  void Add(const std::string& key);
  // Adds after `delay`; an earlier pending add of the same key wins.
  void AddAfter(const std::string& key, Milliseconds delay);
  // Adds after the key's back-off: for failures.
  void AddRateLimited(const std::string& key);
  // Resets the key's back-off: for successes.
  void Forget(const std::string& key);
  int Failures(const std::string& key) const;

  // Waits for a key; nullopt: the queue is shut down and empty. The worker must call Done(key).
  std::optional<std::string> Get();
  void Done(const std::string& key);

  // No more adds; delayed ones are dropped, queued ones are still handed out.
  void ShutDown();
  // ShutDown(), drops what is queued, and waits until nothing is being worked on. False: `timeout` passed first.
  bool Drain(Milliseconds timeout);
  // Looks at the time again; for tests.
  void Wake();

  size_t Size() const;     // ready to be handed out
  size_t Waiting() const;  // delayed
  bool Idle() const;       // nothing queued and nothing being worked on; delayed keys do not count

 private:
  struct Delayed {
    SteadyTime when;
    uint64_t order;
    std::string key;
    bool operator>(const Delayed& other) const { return when != other.when ? when > other.when : order > other.order; }
  };
  struct Queued {
    std::string key;
    SteadyTime since;
  };
  void AddLocked(const std::string& key);
  void PushLocked(const std::string& key);
  void AddAfterLocked(const std::string& key, Milliseconds delay);
  void MoveReadyLocked();

  const WorkQueueOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  RateLimiter limiter_;
  std::deque<Queued> queue_;
  std::set<std::string> dirty_;       // needs work: queued, or to be queued on Done()
  std::set<std::string> processing_;  // with a worker
  std::priority_queue<Delayed, std::vector<Delayed>, std::greater<>> heap_;
  std::map<std::string, SteadyTime> waiting_;  // the valid entry per key; others in the heap are stale
  uint64_t order_ = 0;
  bool shut_down_ = false;
};

}  // namespace trainyard::runtime
