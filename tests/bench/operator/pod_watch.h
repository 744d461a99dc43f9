// Watches the pods of one namespace and knows when how many of them exist, have no gate, are bound, run.
// Thread-safety: Await and Now from one thread; the watch has a thread of its own.
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

#include "operator/cluster/cluster.h"

namespace trainyard::bench {

using Instant = std::chrono::steady_clock::time_point;
inline double Seconds(Instant from, Instant to) { return std::chrono::duration<double>(to - from).count(); }

struct PodCounts {
  int exist = 0;
  int ungated = 0;  // no scheduling gate left
  int bound = 0;    // has a node
  int running = 0;
};

class PodWatch {
 public:
  // Returns when the first list is in. `label_selector` as Kubernetes writes it; empty: all pods.
  PodWatch(cluster::Cluster& cluster, std::string ns, std::string label_selector = "");
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;
  PodWatch& operator=(const PodWatch&) = delete;

  // When the counts first satisfied `condition`, as seen by the watch; nothing after `timeout`.
  std::optional<Instant> Await(const std::function<bool(const PodCounts&)>& condition, std::chrono::seconds timeout);
  // The moments of the milestones "all n exist, are ungated, bound, run" since the last Reset.
  struct Milestones {
    std::optional<Instant> exist, ungated, bound, running;
  };
  void Reset(int n);
  Milestones Reached();
  PodCounts Now();

 private:
  struct Pod {
    bool ungated = false, bound = false, running = false;
  };
  void Run();
  void Take(const nlohmann::json& object, bool deleted);
  void Count(const Pod& pod, int sign);
  void Mark();

  cluster::Cluster& cluster_;
  const std::string ns_, selector_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<std::string, Pod> pods_;
  PodCounts counts_;
  int wanted_ = 0;
  Milestones reached_;
  bool listed_ = false, stop_ = false;
  std::unique_ptr<cluster::Watch> watch_;
  std::thread thread_;
};

}  // namespace trainyard::bench
