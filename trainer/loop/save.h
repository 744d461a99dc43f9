// Saving a checkpoint of all ranks beside training. The state is held still (snapshot.h) and written by a thread; the
// ranks' threads meet in a group of their own, so that no collective of training waits for a disk. A save has three
// stages: every rank writes; the reports are gathered and rank 0 commits; the outcome is told. The next stage begins
// when the vote of a training step says that no rank is at work any more: a disk that hangs holds up the save, and
// neither a collective nor training.
//
// A save that fails for the sake of its storage leaves the last checkpoint as it was, is cleared away, and the next one
// is tried when it is due. All ranks agree about the outcome.
//
// Thread-safety: one thread, that of the rank; every rank makes the same calls after the same steps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/dist/comm.h"
#include "trainer/loop/cadence.h"
#include "trainer/loop/failure.h"
#include "trainer/loop/snapshot.h"
#include "trainer/loop/verifier.h"

namespace trainyard::loop {

struct Session;

class Saver {
 public:
  // For a session with job.checkpoint, which outlives it. Collective: forms the group. Throws CommError.
  explicit Saver(Session& session, checkpoint::FileSystem& fs = checkpoint::PosixFileSystem());
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to save the state after this step. While another save is under way it waits for that one and is then of the
  // step that has been reached. A step that is saved already is not saved again.
  void Begin();
  // The same on every rank, whether or not any of them is at work for it.
  bool UnderWay() const { return save_ != nullptr; }
  // Whether this rank is at work for a save, and whether one is due by time, which rank 0 alone knows: for the vote of
  // the step.
  bool Working() const;
  bool Due() const;
  // A step has taken so long.
  void Stepped(double seconds);
  // After the vote: `working` is true when any rank was at work. Failures besides those of the storage end training:
  // kExitFenced. Throws CommError.
  Outcome<void> Move(bool working);
  // Saves the state after this step and returns when that is durable on every rank's word, after the end of a save that
  // is under way. Failures: kExitStorage, kExitFenced. Throws CommError (also when another rank is lost).
  Outcome<void> SaveNow();

  // On the rank that reads checkpoints back: returns when it has looked at the last one. Not collective.
  void AwaitVerified();

  // Saves that have failed since the last one that did not; the same on every rank.
  int64_t failures() const { return failures_; }
  // What the ranks have told each other for saves.
  int64_t payload_bytes() const { return group_->payload_bytes(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Save {
    checkpoint::SaveRequest request;
    std::string train_state;
    Time begin, copied;
    bool awaited = false;                           // training waits for the end of it
    Failure failure{contract::kExitSucceeded, ""};  // unless kExitSucceeded: nothing has been committed
    checkpoint::CommitInfo committed;               // on rank 0, as all that follows
    double stall_seconds = 0;                       // most of the ranks
    double write_seconds = 0;
    std::optional<int64_t> free_bytes, directory_bytes;
  };

  void Start(bool in_place);
  // Stages; in the save's thread.
  void Run();
  std::string Write();
  void Settle(const std::vector<std::string>& reports);
  void Prune();
  void Pause();
  // In the rank's.
  void Hurry();
  Outcome<void> Collect();
  void ReportSaved(const Save& save);
  void ReportFailed(const Save& save);
  void ReportProgress();

  Session& session_;
  checkpoint::FileSystem& fs_;
  std::unique_ptr<dist::Comm> group_;
  Snapshot snapshot_;
  Cadence cadence_;
  std::unique_ptr<Verifier> verifier_;             // on rank 0 of a job that asks for it
  std::vector<checkpoint::CheckpointInfo> known_;  // on rank 0, what the last save left; its thread's
  bool waiting_ = false;                           // another save is due
  int64_t failures_ = 0;
  std::unique_ptr<Save> save_;  // under way
  std::thread thread_;          // of save_
  std::exception_ptr error_;    // of the thread; read after it has ended

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  bool working_ = false;
  bool done_ = false;   // the thread ends
  bool hurry_ = false;  // stages follow each other without votes
};

// SaveNow of the session's saver, which is made when there is none; nothing without job.checkpoint.
Outcome<void> Save(Session& session);

}  // namespace trainyard::loop
