#include "trainer/launch/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainer/contract/contract.h"
#include "trainer/contract/flight_record.h"
#include "trainer/launch/flight.h"
#include "trainer/launch/rank_process.h"

namespace trainyard::launch {

Supervisor::Supervisor(Plan plan, std::function<void(const std::string&)> output)
    : plan_(std::move(plan)), output_(std::move(output)), round_(plan_.round) {}

Result<std::unique_ptr<Supervisor>> Supervisor::Make(Plan plan, std::function<void(const std::string&)> output) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(plan), std::move(output)));
  if (Status opened = supervisor->Open(); !opened) return Fail(opened.error());
  return supervisor;
}

Status Supervisor::Open() {
  sigset_t watched;
  sigemptyset(&watched);
  for (int signal_number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&watched, signal_number);
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  request_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd_ < 0 || request_fd_ < 0) {
    return Fail(ErrorCode::kUnavailable, std::string("cannot watch signals: ") + std::strerror(errno));
  }
  return {};
}

Supervisor::~Supervisor() {
  KillAll();  // nothing lives here after Run()
  if (signal_fd_ >= 0) close(signal_fd_);
  if (request_fd_ >= 0) close(request_fd_);
}

Outcome Supervisor::Run() {
  if (auto failed = StartAll()) return *failed;
  for (;;) {
    Wait();
    if (!AllGone()) continue;
    Outcome outcome = Judge(exits_);
    if (outcome.exit_code == contract::kExitCommunication && !behind_.empty()) {
      outcome.message += "; flight record: " + behind_;
    }
    if (state_ != State::kRestarting || outcome.exit_code == contract::kExitSucceeded) {
      SetState(State::kDone);
      return outcome;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++round_;
    }
    Say("restarting all ranks, round " + std::to_string(round_));
    if (auto failed = StartAll()) return *failed;
  }
}

// Returns how it ended when a rank could not be started.
std::optional<Outcome> Supervisor::StartAll() {
  exits_.clear();
  behind_.clear();
  deadline_.reset();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ranks_.clear();
    restart_requested_ = false;
  }
  for (int local = 0; local < plan_.nproc_per_node; ++local) {
    auto spawned = Spawn(plan_.command, RankEnvironment(plan_, local, round_));
    if (!spawned) {
      KillAll();
      SetState(State::kDone);
      // A program that is not there will not be there next time.
      const bool ours = spawned.error().code == ErrorCode::kResourceExhausted;
      return Outcome{ours ? contract::kExitInternal : contract::kExitConfiguration, plan_.FirstRank() + local, 0,
                     "trainyard-launch: " + spawned.error().message};
    }
    Rank rank;
    rank.rank = plan_.FirstRank() + local;
    rank.pid = rank.started_pid = spawned->pid;
    rank.stderr_fd = spawned->stderr_fd;
    rank.tail = std::make_unique<LineTail>("[rank " + std::to_string(rank.rank) + "] ", output_);
    std::lock_guard<std::mutex> lock(mutex_);
    ranks_.push_back(std::move(rank));
  }
  SetState(State::kRunning);
  return std::nullopt;
}

// One round of waiting: signals, requests, output, deadline.
void Supervisor::Wait() {
  std::vector<pollfd> waiting = {{signal_fd_, POLLIN, 0}, {request_fd_, POLLIN, 0}};
  std::vector<Rank*> talking;
  for (Rank& rank : ranks_) {
    if (rank.stderr_fd < 0) continue;
    waiting.push_back({rank.stderr_fd, POLLIN, 0});
    talking.push_back(&rank);
  }
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  if (poll(waiting.data(), waiting.size(), timeout) < 0) return;  // EINTR
  for (size_t i = 0; i < talking.size(); ++i) {
    if (waiting[i + 2].revents != 0) Drain(*talking[i], false);
  }
  if (waiting[0].revents != 0) OnSignals();
  if (waiting[1].revents != 0) OnRequests();
  if (deadline_ && Clock::now() >= *deadline_) {
    Say("ranks did not stop in time, killing them");
    KillAll();
    deadline_.reset();
  }
}

void Supervisor::OnSignals() {
  bool child = false;
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      child = true;
      continue;
    }
    // A person who presses Ctrl-C again does not want to wait.
    const bool again = ++stop_signals_ > 1 && info.ssi_signo == SIGINT;
    Stop(State::kStopping, again ? std::chrono::milliseconds(0) : plan_.grace);
  }
  if (child) Reap();
}

void Supervisor::OnRequests() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(request_fd_, &count, sizeof count);
  bool stop = false;
  bool restart = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(stop, stop_requested_);
    restart = restart_requested_;
  }
  if (stop) Stop(State::kStopping, plan_.grace);
  if (restart && state_ == State::kRunning) Stop(State::kRestarting, plan_.grace);
}

// Sends SIGTERM to every living rank and sets the deadline. A stop overrides a restart or a failure under way, but
// gives nobody more time than was left.
void Supervisor::Stop(State next, std::chrono::milliseconds grace) {
  const Clock::time_point deadline = Clock::now() + grace;
  deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
  if (state_ != State::kFailing) SetState(next);
  for (Rank& rank : ranks_) {
    if (rank.pid < 0 || rank.sent_signal != 0) continue;
    rank.sent_signal = SIGTERM;
    // To the process alone, as the kubelet does: helpers of a script (data loaders) are its own to stop.
    kill(rank.pid, SIGTERM);
  }
}

void Supervisor::KillAll() {
  for (Rank& rank : ranks_) {
    if (rank.pid < 0) continue;
    rank.sent_signal = SIGKILL;
    kill(-rank.pid, SIGKILL);
  }
}

void Supervisor::Reap() {
  for (;;) {
    siginfo_t info{};
    // Look first: as long as it is not reaped, its process group cannot become someone else's.
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& candidate) { return candidate.pid == info.si_pid; });
    if (rank != ranks_.end()) kill(-info.si_pid, SIGKILL);  // what the rank left behind
    int wait_status = 0;
    if (waitpid(info.si_pid, &wait_status, 0) == info.si_pid && rank != ranks_.end()) OnExit(*rank, wait_status);
  }
}

void Supervisor::OnExit(Rank& rank, int wait_status) {
  Drain(rank, true);
  RankExit exit;
  exit.rank = rank.rank;
  exit.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  exit.code = exit.signal != 0 ? 128 + exit.signal : WEXITSTATUS(wait_status);
  // A crash, or the kernel's own SIGKILL, after we asked a rank to stop is still its own.
  exit.by_us =
      exit.signal != 0 && (exit.signal == rank.sent_signal || (exit.signal == SIGTERM && rank.sent_signal == SIGKILL));
  exit.message = rank.tail->Message();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    rank.pid = -1;
    rank.exit_code = exit.code;
  }
  const bool fine = exit.code == contract::kExitSucceeded || exit.code == contract::kExitStopped;
  if (!fine) {
    Say("rank " + std::to_string(exit.rank) +
        (exit.signal != 0 ? " was killed by signal " + std::to_string(exit.signal)
                          : " exited with code " + std::to_string(exit.code)));
  }
  const int exit_code = exit.code;
  exits_.push_back(std::move(exit));
  if (!fine && state_ == State::kRunning) {
    behind_ = ReadFlightRecords();  // while the others are still where they are
    Stop(State::kFailing, plan_.peer_grace);
  } else if (exit_code == contract::kExitCommunication && deadline_) {
    Stop(state_, plan_.peer_grace);  // who has lost its peers will not save: the rest of the grace is of no use to them
  }
}

std::string Supervisor::ReadFlightRecords() const {
  std::vector<FlightRecord> records;
  for (const Rank& rank : ranks_) {
    auto record = ReadFlightRecord(plan_.run_dir + "/" + contract::flight::FileName(rank.rank), rank.started_pid);
    if (!record) continue;
    if (rank.pid > 0) record->process_state = ProcessState(rank.pid);
    records.push_back(std::move(*record));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return WhoIsBehind(records, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Reads what is there. `last`: the rank is gone; whoever still holds the pipe is not waited for.
void Supervisor::Drain(Rank& rank, bool last) {
  if (rank.stderr_fd < 0) return;
  char buffer[16 * 1024];
  ssize_t n;
  while ((n = read(rank.stderr_fd, buffer, sizeof buffer)) > 0) {
    rank.tail->Append({buffer, static_cast<size_t>(n)});
    if (!last) return;  // others want their turn; poll will report the rest
  }
  const bool open = n < 0 && (errno == EAGAIN || errno == EINTR);
  if (open && !last) return;
  rank.tail->Finish();
  close(rank.stderr_fd);
  rank.stderr_fd = -1;
}

bool Supervisor::AllGone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid < 0; });
}

Status Supervisor::RequestRestart() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (plan_.nnodes > 1) {
    return Fail(ErrorCode::kFailedPrecondition, "a restart of processes is for jobs of one node, this one has " +
                                                    std::to_string(plan_.nnodes) + ": start a new attempt");
  }
  if (state_ != State::kRunning) {
    return Fail(ErrorCode::kFailedPrecondition, "the ranks are not running: " + Name(state_));
  }
  restart_requested_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(request_fd_, &one, sizeof one);
  return {};
}

void Supervisor::RequestStop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stop_requested_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(request_fd_, &one, sizeof one);
}

View Supervisor::Snapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  View view{Name(state_), round_, {}};
  for (const Rank& rank : ranks_) view.ranks.push_back({rank.rank, rank.pid, rank.exit_code});
  return view;
}

void Supervisor::SetState(State state) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = state;
}

void Supervisor::Say(const std::string& line) { output_("trainyard-launch: " + line + "\n"); }

std::string Supervisor::Name(State state) {
  switch (state) {
    case State::kRunning:
      return "Running";
    case State::kStopping:
      return "Stopping";
    case State::kFailing:
      return "Failing";
    case State::kRestarting:
      return "Restarting";
    case State::kDone:
      return "Done";
  }
  return "Unknown";
}

}  // namespace trainyard::launch
