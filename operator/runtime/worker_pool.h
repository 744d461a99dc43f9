// Threads that take keys from a WorkQueue and reconcile them. An error or an exception is counted and the key retried
// with back-off; success forgets the back-off. Thread-safety: all members from any thread but the workers'.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/error.h"
#include "operator/runtime/work_queue.h"

namespace trainyard::runtime {

// Success may ask to be called again after a while.
using Reconcile = std::function<Result<std::optional<Milliseconds>>(const std::string& key)>;

class WorkerPool {
 public:
  struct Counters {
    uint64_t succeeded = 0;
    uint64_t failed = 0;
    uint64_t exceptions = 0;  // counted in failed too
  };

  WorkerPool(WorkQueue& queue, int workers, Reconcile reconcile);
  ~WorkerPool();  // Stop()
  // Shuts the queue down, waits for the calls under way and joins. False: they took longer than `timeout` (it still
  // waits).
  bool Stop(Milliseconds timeout = Milliseconds(30'000));
  Counters counters() const;

 private:
  void Work();
  void RunOne(const std::string& key);

  WorkQueue& queue_;
  const Reconcile reconcile_;
  std::atomic<uint64_t> succeeded_{0}, failed_{0}, exceptions_{0};
  std::vector<std::jthread> threads_;
};

}  // namespace trainyard::runtime
