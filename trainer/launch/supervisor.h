// Runs the ranks of one pod from start to end: starts them, passes stop signals on, kills what does not stop, restarts
// them on request as the next round, reaps every child (the launcher is process 1 of its container, so orphans too).
// One thread waits in poll(2) for signals, requests and output; nothing is polled by time.
// Thread-safety: Run() belongs to the main thread; the requests and View() may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/launch/line_tail.h"
#include "trainer/launch/outcome.h"
#include "trainer/launch/plan.h"

namespace trainyard::launch {

// What others may know about the ranks.
struct View {
  struct Rank {
    int rank = 0;
    int pid = 0;
    std::optional<int> exit_code;  // of this round; absent while it runs
  };
  std::string state;  // Running, Stopping, Failing, Restarting, Done
  int64_t round = 0;
  std::vector<Rank> ranks;
};

class Supervisor {
 public:
  // `output` gets what the ranks say on standard error, line by line with a prefix, and the launcher's own lines.
  // Blocks SIGTERM, SIGINT and SIGCHLD in the calling thread: call it before any other thread starts.
  // Error: kUnavailable when the kernel grants no descriptors.
  static Result<std::unique_ptr<Supervisor>> Make(Plan plan, std::function<void(const std::string&)> output);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Blocks until all ranks are gone for good.
  Outcome Run();

  // Stops the ranks and starts them again with the next round. Error: kFailedPrecondition while they already end, and
  // with several nodes, whose launchers do not hear of it.
  Status RequestRestart();
  // As SIGTERM does.
  void RequestStop();
  View Snapshot() const;

 private:
  enum class State { kRunning, kStopping, kFailing, kRestarting, kDone };
  struct Rank {
    int rank = 0;
    pid_t pid = -1;  // -1: gone
    pid_t started_pid = -1;
    int stderr_fd = -1;
    int sent_signal = 0;
    std::optional<int> exit_code;
    std::unique_ptr<LineTail> tail;
  };
  using Clock = std::chrono::steady_clock;

  Supervisor(Plan plan, std::function<void(const std::string&)> output);
  Status Open();
  std::optional<Outcome> StartAll();
  void Wait();
  void OnSignals();
  void OnRequests();
  void Drain(Rank& rank, bool last);
  void Reap();
  void OnExit(Rank& rank, int wait_status);
  std::string ReadFlightRecords() const;
  void Stop(State next, std::chrono::milliseconds grace);
  void KillAll();
  bool AllGone() const;
  void Say(const std::string& line);
  void SetState(State state);
  static std::string Name(State state);

  const Plan plan_;
  const std::function<void(const std::string&)> output_;
  int signal_fd_ = -1;
  int request_fd_ = -1;
  int stop_signals_ = 0;
  std::optional<Clock::time_point> deadline_;  // of the stop under way
  std::vector<RankExit> exits_;                // of this round
  std::string behind_;                         // what the flight records told when the first rank failed

  mutable std::mutex mutex_;  // guards what follows; Run() alone writes all but the two requests
  State state_ = State::kRunning;
  int64_t round_ = 0;
  std::vector<Rank> ranks_;
  bool stop_requested_ = false;
  bool restart_requested_ = false;
};

}  // namespace trainyard::launch
