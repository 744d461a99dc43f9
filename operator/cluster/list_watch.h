// Follows one kind: drives the reflector's state machine against a Cluster. One thread of its own, which waits and
// never polls. Thread-safety: Start() once; Stop() from any thread but the callbacks'; stats() from any. Callbacks come
// one at a time from that thread, with no lock held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/backoff.h"
#include "operator/cluster/cluster.h"
#include "operator/cluster/reflector.h"

namespace trainyard::cluster {

struct ListWatchOptions {
  std::string ns;
  std::string label_selector;
  Backoff backoff{Milliseconds(800), Milliseconds(30'000)};  // after failed lists and watches, full jitter
  int page_size = 500;                                       // objects held as JSON at a time while listing
};

// What an informer did so far, for metrics.
struct InformerStats {
  std::chrono::steady_clock::time_point last_event{};  // something came from the server, a bookmark too; epoch: never
  uint64_t lists = 0;                                  // finished ones
  uint64_t watches = 0;                                // opened ones
  std::map<std::string, uint64_t> watch_restarts;      // by reason: ended, stalled, expired, refused, error
  uint64_t problems = 0;                               // failed lists and watches, objects that could not be read
  size_t objects = 0;                                  // in the cache
};

class ListWatch {
 public:
  struct Callbacks {
    std::function<void()> list_begun;                      // pages of an unfinished list are void
    std::function<void(const std::vector<Object>&)> page;  // a part of the list
    std::function<void()> list_done;                       // what was in no page has vanished
    std::function<void(const Object&)> upsert;
    std::function<void(const Object&)> remove;
    std::function<void(const Error&)> problem;  // a list or watch failed and will be retried; may be empty
  };

  ListWatch(Cluster& cluster, Kind kind, ListWatchOptions options, Callbacks callbacks);
  ~ListWatch();  // Stop()
  void Start();
  void Stop();
  // `objects` is left zero: this class holds none.
  InformerStats stats() const;

 private:
  void Run();
  reflector::Input Await(const reflector::State& state);  // does what the state wants, and says how it went
  reflector::Input OpenWatch(const std::string& version);
  void Apply(const reflector::Output& output);
  bool SleepUntil(reflector::Time until);  // false: stopping
  bool stopping() const;
  Error Wrap(const char* what, const Error& error) const;
  void Count(const std::function<void(InformerStats&)>& change);

  Cluster& cluster_;
  const Kind kind_;
  const ListWatchOptions options_;
  const Callbacks callbacks_;
  mutable std::mutex mutex_;  // guards the rest but thread_
  std::condition_variable wake_;
  bool stop_ = false;
  std::shared_ptr<Watch> watch_;
  InformerStats stats_;
  std::thread thread_;
};

}  // namespace trainyard::cluster
