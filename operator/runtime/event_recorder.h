// Tells people what happened, as Kubernetes events. Nobody waits for it: events go through a bounded queue to a thread
// of its own. The same event of the same object again is a count on the first one; an object that will not be quiet is
// held to 25 at once and then one every five minutes, as client-go does; what does not fit is dropped and counted.
// Thread-safety: all members from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>

#include "operator/base/clock.h"
#include "operator/cluster/cluster.h"
#include "operator/runtime/rate_limit.h"

namespace trainyard::runtime {

struct EventRecorderOptions {
  std::string component = "trainyard-operator";
  size_t max_queued = 1000;
  size_t max_remembered = 4096;  // events that may still be counted up, and objects whose spam is known
  double burst = 25;             // events of one object at once
  Milliseconds refill{300'000};  // and then one in this time
  int tries = 3;                 // of a write that the server cannot take now
  Milliseconds retry_after{1'000};
  std::function<SteadyTime()> now = [] { return std::chrono::steady_clock::now(); };
  // Hears of each event: "written", "failed" or "dropped". May be empty; must not block.
  std::function<void(const char* result)> on_result;
};

class EventRecorder {
 public:
  struct About {
    std::string api_version;
    std::string kind;
    cluster::ObjectKey key;
    std::string uid;
  };

  EventRecorder(cluster::Cluster& cluster, const Clock& clock, EventRecorderOptions options = {});
  ~EventRecorder();  // Stop() without a wait

  // `type` is Normal or Warning; `message` is cut to what the server takes.
  void Record(const About& about, const std::string& type, const std::string& reason, const std::string& message);
  // Waits until all that was recorded has been written or given up. False: `timeout` passed first.
  bool Flush(Milliseconds timeout);
  // Flush(), then no more: what is left is dropped.
  void Stop(Milliseconds flush_timeout);

 private:
  struct Entry {
    About about;
    std::string type, reason, message;
    TimePoint time;
  };
  struct Written {  // an event as the server has it
    std::string name;
    int64_t count = 1;
    std::list<std::string>::iterator used;
  };
  struct Bucket {
    double tokens = 0;
    SteadyTime refilled;
  };

  void Run(std::stop_token stop);
  bool Allowed(const std::string& uid);
  // Of the thread alone.
  Status Write(const Entry& entry);
  Status Create(const Entry& entry, const std::string& dedupe_key);
  void Tell(const char* result) const;

  cluster::Cluster& cluster_;
  const Clock& clock_;
  const EventRecorderOptions options_;
  // Of the thread: newest first, and what each key means.
  std::list<std::string> recent_;
  std::unordered_map<std::string, Written> written_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable_any changed_;
  std::deque<Entry> queue_;
  std::unordered_map<std::string, Bucket> buckets_;  // by UID of the object
  bool busy_ = false;
  bool closed_ = false;
  std::jthread thread_;
};

}  // namespace trainyard::runtime
