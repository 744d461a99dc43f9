// Follows one kind: lists it, watches from the list's version, and lists again when that version has expired or the
// stream breaks for good. States: Listing -> Watching -> (kGone) Listing. One thread of its own, which waits and never
// polls. Thread-safety: Start() once; Stop() from any thread but the callbacks'. Callbacks come one at a time from that
// thread, with no lock held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/backoff.h"
#include "operator/cluster/cluster.h"

namespace trainyard::cluster {

struct ListWatchOptions {
  std::string ns;
  std::string label_selector;
  Backoff backoff{Milliseconds(800), Milliseconds(30'000)};  // after failed lists and watches, jittered
};

class ListWatch {
 public:
  struct Callbacks {
    std::function<void(const std::vector<Object>&)> replace;  // a whole list: what is not in it has vanished
    std::function<void(const Object&)> upsert;
    std::function<void(const Object&)> remove;
    std::function<void(const Error&)> problem;  // a list or watch failed and will be retried; may be empty
  };

  ListWatch(Cluster& cluster, Kind kind, ListWatchOptions options, Callbacks callbacks);
  ~ListWatch();  // Stop()
  void Start();
  void Stop();

 private:
  void Run();
  Status ListOnce();                  // sets version_
  Status WatchOnce();                 // until the stream ends
  bool SleepFor(Milliseconds delay);  // false: stopping
  bool stopping();

  Cluster& cluster_;
  const Kind kind_;
  const ListWatchOptions options_;
  const Callbacks callbacks_;
  std::string version_;  // of the thread; empty: list first
  std::mutex mutex_;     // guards stop_ and watch_
  std::condition_variable wake_;
  bool stop_ = false;
  std::shared_ptr<Watch> watch_;
  std::thread thread_;
};

}  // namespace trainyard::cluster
