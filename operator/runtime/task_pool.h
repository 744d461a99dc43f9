// A few threads that run the calls of many batches at once, so that no batch starts threads of its own and all of them
// together hold the bound. Batches take turns. Thread-safety: all members from any thread but the pool's own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trainyard::runtime {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();  // after the batches under way

  // Calls work(0) ... work(count - 1), some at once, and returns when all have ended. Once a call returns false no
  // further one is begun. `work` must not throw. A single call runs on the caller's thread.
  void ForEach(size_t count, const std::function<bool(size_t)>& work);

 private:
  struct Batch {
    const std::function<bool(size_t)>* work;
    size_t count;
    size_t next = 0;
    size_t running = 0;
    bool Ended() const { return next >= count && running == 0; }
  };
  void Run();

  std::mutex mutex_;  // guards everything below
  std::condition_variable work_came_;
  std::condition_variable batch_ended_;
  std::deque<Batch*> batches_;  // with calls to begin
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace trainyard::runtime
