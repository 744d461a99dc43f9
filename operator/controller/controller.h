// The reconciler: caches of jobs, pods, nodes and services feed a work queue of jobs; per job it asks lifecycle::Decide
// what to do, writes status first (with the resource version that was read), then acts, then tells. It holds no state
// that matters: a new one on the same cluster goes on where the old one stopped. Thread-safety: all members from any
// thread; Start() once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "operator/cluster/cluster.h"
#include "operator/cluster/progress.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/runtime/metrics.h"

namespace trainyard::controller {

using DecideFunction = std::function<lifecycle::Decision(const lifecycle::Input&, const lifecycle::Options&)>;

struct ControllerOptions {
  std::string ns;             // namespace of the jobs; empty: all. Pods and nodes are always watched cluster-wide
  int workers = 4;            // jobs worked on at once
  int parallel_creates = 16;  // pods created, un-gated or deleted at once, of all jobs together
  lifecycle::Options lifecycle;
  // The cluster has no priority classes: whichever a job names counts as 0.
  bool any_priority_class = false;
  DecideFunction decide = lifecycle::Decide;
  Milliseconds watch_idle{185'000};     // a live watch brings something, a bookmark at least, or ends within this
  runtime::Metrics* metrics = nullptr;  // null: nobody counts; outlives the controller
};

struct ControllerCounters {
  uint64_t reconciles = 0;
  uint64_t failures = 0;
  uint64_t status_writes = 0;
  uint64_t actions = 0;
  uint64_t conflicts = 0;
  uint64_t events = 0;
};

class Controller {
 public:
  Controller(cluster::Cluster& cluster, cluster::ProgressSource& progress, const Clock& clock,
             ControllerOptions options);
  ~Controller();  // Stop()
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Starts the caches and, once they are filled, the workers. Error: kDeadlineExceeded when a cache does not fill in
  // `sync_timeout`, naming it and the last error of its list; the caches go on trying, and the call may be repeated.
  // A stop ends the wait with the same error.
  Status Start(Milliseconds sync_timeout = Milliseconds(30'000), const std::stop_token& stop = {});
  // Takes no new work, waits for the calls under way and writes the events that are left. False: they took longer than
  // `timeout`; nothing has been given up then. Stop() must follow.
  bool Drain(Milliseconds timeout);
  // Stops the workers after the calls under way, then the caches. Jobs and pods stay as they are.
  void Stop();

  // The job of this UID has news of its progress.
  void OnProgress(const std::string& job_uid);
  // Whether all caches are filled; the error says which is not, and why.
  Status Synced() const;
  // Whether the watches still move; the error says which does not.
  Status Alive();
  ControllerCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::controller
