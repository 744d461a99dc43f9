// The order of one group's calls: a queue, the thread that runs it, and what callers wait on. The first failure ends
// everything that is queued or under way and closes the group.
// Thread-safety: Shared is guarded by its mutex; the functions may be called from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "trainer/dist/comm.h"
#include "trainer/dist/gloo_group.h"
#include "trainer/dist/monitor.h"

namespace trainyard::dist::gloo {

// One call that the group's thread runs.
struct Task {
  std::function<void()> run;
  std::string what;  // Describe()
  std::chrono::milliseconds allowed{0};
  SteadyTime start;
  uint64_t id = 0;  // in the monitor's log
  bool done = false;

  SteadyTime deadline() const { return start + allowed; }
};

// What a comm, its thread and its outstanding works share.
struct Shared {
  std::shared_ptr<GlooGroup> group;
  std::shared_ptr<Monitor> monitor;  // null: nobody looks after the calls. Set before the first one
  std::vector<int> world_ranks;      // index = rank in the group
  std::mutex mutex;                  // guards everything below
  std::condition_variable changed;
  std::deque<std::shared_ptr<Task>> queue;
  bool stopping = false;
  bool failed = false;
  CommError::Kind kind = CommError::Kind::kPeerLost;
  std::string failure;  // the first one; the later ones are its echo

  // Records the first failure, tells the peers `reason` and closes the group, so that they do not wait for a rank that
  // gave up.
  void Fail(CommError::Kind why, const std::string& message, const std::string& reason);
  // Notes that a call waits for the message of `peer`, a rank of the group.
  void WaitsFor(const Task& task, int peer);
  // Throws the failure for the call `what`. With the mutex held.
  [[noreturn]] void Throw(const std::string& what) const;
};

// Records what went wrong in a call: whom the monitor blames, else the text of the exception that ended it.
void FailCall(Shared& shared, const Task& task, const std::string& error);

// Runs the queue until it is empty and stopping, or until the first failure.
void RunQueue(const std::shared_ptr<Shared>& shared);

// The handle of a queued task, and of a message that was started outside the queue.
WorkPtr MakeWork(std::shared_ptr<Shared> shared, std::shared_ptr<Task> task);
WorkPtr MakeWork(std::shared_ptr<Shared> shared, Task task, std::unique_ptr<GlooMessage> message);

}  // namespace trainyard::dist::gloo
