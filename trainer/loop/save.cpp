#include "trainer/loop/save.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "operator/base/clock.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/session.h"
#include "trainer/loop/state.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

double Seconds(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string Doing(int64_t step) { return "checkpoint of step " + std::to_string(step) + " not written"; }

// What a rank reports: a number, the end of the line, a text. The exit code and why it could not write, or 0 and its
// part of the manifest.
std::string Pack(int number, const std::string& text) { return std::to_string(number) + "\n" + text; }

Failure Unpack(const std::string& packed) {
  const size_t end = std::min(packed.find('\n'), packed.size());
  int number = contract::kExitInternal;
  std::from_chars(packed.data(), packed.data() + end, number);
  return {static_cast<contract::ExitCode>(number), packed.substr(std::min(end + 1, packed.size()))};
}

}  // namespace

Saver::Saver(Session& session, checkpoint::FileSystem& fs)
    : session_(session),
      fs_(fs),
      group_(
          session.world->Split(0, session.env.rank,
                               {.deadline = std::max(session.world->default_deadline(), dist::Comm::kDefaultDeadline),
                                .label = "save group"})),
      snapshot_(*session.device, session.env.checkpoint_memory_bytes),
      cadence_(*session.job.checkpoint, Now()) {
  const config::Checkpoint& job = *session.job.checkpoint;
  if (session.env.rank == 0 && (job.verify_after_save || job.verify_every_hours > 0)) {
    verifier_ = std::make_unique<Verifier>(session.CheckpointRoot(), job.verify_every_hours, fs);
  }
  group_->set_observer(nullptr);  // its waits are not training's
  group_->SetBackground();
  session.engine->BeforeUpdate([this](int unit) {
    if (!snapshot_.Holds(unit)) return;
    session_.watch->Switch(observe::Activity::kCheckpoint);
    snapshot_.BeforeUpdate(unit);
    session_.watch->Switch(observe::Activity::kOptimizer);
  });
}

Saver::~Saver() {
  session_.engine->BeforeUpdate(nullptr);
  if (!thread_.joinable()) return;
  group_->Abort("the rank leaves in the middle of a save");
  Hurry();
  thread_.join();
}

void Saver::Start(bool in_place) {
  Session& s = session_;
  save_ = std::make_unique<Save>();
  save_->begin = save_->copied = Now();
  save_->awaited = in_place;
  cadence_.Began(save_->begin);
  snapshot_.Begin(*s.engine, in_place);
  checkpoint::SaveRequest& request = save_->request;
  request.root = s.CheckpointRoot();
  request.step = s.progress.step;
  request.fence = {s.env.uid, s.env.attempt, s.env.round};
  request.rank = s.env.rank;
  request.world = s.env.world;
  request.model = snapshot_.model();
  request.optim = snapshot_.optim();
  request.fetch = [this](const checkpoint::TensorSlice& slice) { return snapshot_.Bytes(slice); };
  request.time = RealClock().Now();
  if (s.env.rank == 0) save_->train_state = TrainStateJson(s);
  error_ = nullptr;
  working_ = true;
  done_ = false;
  hurry_ = in_place;
  thread_ = std::thread([this] { Run(); });
}

void Saver::Begin() {
  Session& s = session_;
  if (s.progress.saved_step == s.progress.step) return;
  if (!save_) return Start(/*in_place=*/false);
  if (!waiting_ && s.env.rank == 0) {
    observe::Info(c10::str("the save of step ", save_->request.step, " is still under way at step ", s.progress.step,
                           ": the next one begins after it"));
  }
  waiting_ = true;
}

bool Saver::Working() const {
  std::lock_guard lock(mutex_);
  return working_;
}

bool Saver::Due() const { return session_.env.rank == 0 && cadence_.Due(Now()); }

void Saver::Stepped(double seconds) {
  cadence_.Stepped(seconds, save_ != nullptr);
  if (session_.env.rank == 0) ReportProgress();
}

Outcome<void> Saver::Move(bool working) {
  if (!save_ || working) return {};
  {
    std::lock_guard lock(mutex_);
    if (!done_) {
      working_ = true;
      changed_.notify_all();
      return {};
    }
  }
  if (auto saved = Collect(); !saved && saved.error().exit_code != contract::kExitStorage) return saved;
  if (std::exchange(waiting_, false)) Begin();
  return {};
}

Outcome<void> Saver::SaveNow() {
  waiting_ = false;
  if (save_) {
    Hurry();
    if (auto saved = Collect(); !saved && saved.error().exit_code != contract::kExitStorage) return saved;
  }
  if (session_.progress.saved_step == session_.progress.step) return {};
  Start(/*in_place=*/true);
  return Collect();
}

void Saver::Hurry() {
  std::lock_guard lock(mutex_);
  hurry_ = true;
  changed_.notify_all();
}

void Saver::Pause() {
  std::unique_lock lock(mutex_);
  working_ = hurry_;
  changed_.wait(lock, [&] { return working_ || hurry_; });
}

void Saver::Run() {
  try {
    const std::string report = Write();
    Pause();
    const auto reports = GatherTexts(*group_, report, "checkpoint reports", kStorageDeadline);
    if (session_.env.rank == 0) Settle(reports);
    Pause();
    const Failure& failure = save_->failure;
    save_->failure = Unpack(
        BroadcastText(*group_, Pack(failure.exit_code, failure.message), "checkpoint outcome", kStorageDeadline));
  } catch (...) {
    error_ = std::current_exception();  // the rank's thread is told
  }
  snapshot_.Finished();
  std::lock_guard lock(mutex_);
  working_ = false;
  done_ = true;
  changed_.notify_all();
}

std::string Saver::Write() {
  if (snapshot_.bytes_in_place() == 0) {
    snapshot_.CopyAll();
    save_->copied = Now();
  }
  const auto written = checkpoint::WriteShards(save_->request, fs_);
  snapshot_.Finished();
  if (!written) {
    const Failure failure = WriteFailure(written.error(), "rank " + std::to_string(session_.env.rank));
    return Pack(failure.exit_code, failure.message);
  }
  return Pack(contract::kExitSucceeded, std::to_string(snapshot_.StallSeconds()) + "\n" + written->manifest);
}

// On rank 0.
void Saver::Settle(const std::vector<std::string>& reports) {
  Save& save = *save_;
  std::vector<std::string> manifests;
  for (const std::string& packed : reports) {
    Failure report = Unpack(packed);
    if (report.exit_code != contract::kExitSucceeded) {
      report.message = Doing(save.request.step) + ": " + report.message;
      // Of several the first, unless a later one is worse than a lack of space.
      if (save.failure.exit_code == contract::kExitSucceeded || save.failure.exit_code == contract::kExitStorage) {
        save.failure = std::move(report);
      }
      continue;
    }
    const size_t end = report.message.find('\n');
    save.stall_seconds = std::max(save.stall_seconds, std::strtod(report.message.c_str(), nullptr));
    manifests.push_back(report.message.substr(end + 1));
  }
  if (save.failure.exit_code == contract::kExitSucceeded) {
    auto committed = checkpoint::Commit(save.request, save.train_state, manifests, fs_);
    if (committed) {
      save.committed = std::move(*committed);
      save.write_seconds = Seconds(save.copied, Now());
      Prune();
    } else {
      save.failure = WriteFailure(committed.error(), Doing(save.request.step));
    }
  }
  if (save.failure.exit_code != contract::kExitSucceeded) {
    // It may be what fills the disk.
    if (Status s = checkpoint::Discard(save.request, fs_); !s)
      observe::Warn("what was written of it stays: " + s.error().message);
  }
  if (const auto free = fs_.FreeBytes(save.request.root)) save.free_bytes = *free;
}

// Old checkpoints that cannot be removed cost space, not the job.
void Saver::Prune() {
  const config::Checkpoint& wanted = *session_.job.checkpoint;
  const std::string& root = save_->request.root;
  std::optional<std::vector<checkpoint::CheckpointInfo>> left;
  if (wanted.keep_last > 0) {
    const checkpoint::Keep keep{.last = wanted.keep_last,
                                .every_steps = wanted.keep_every_steps,
                                .in_use = {save_->request.step},
                                .bad = verifier_ ? verifier_->Bad() : std::vector<int64_t>()};
    auto pruned = checkpoint::Prune(root, keep, checkpoint::Check::kStructure, fs_, &save_->request.fence, known_);
    if (!pruned) return observe::Warn("old checkpoints stay: " + pruned.error().message);
    left = std::move(pruned->left);
  } else {
    auto all = checkpoint::List(root, checkpoint::Check::kStructure, fs_, known_);
    if (!all) return observe::Warn("the size of all checkpoints is unknown: " + all.error().message);
    left = std::move(*all);
  }
  if (verifier_) verifier_->KeepOnly(*left);
  save_->directory_bytes = 0;
  for (const auto& info : *left) *save_->directory_bytes += info.bytes;
  known_ = *std::move(left);
}

Outcome<void> Saver::Collect() {
  thread_.join();
  const std::unique_ptr<Save> save = std::move(save_);
  if (error_) std::rethrow_exception(error_);
  const bool saved = save->failure.exit_code == contract::kExitSucceeded;
  failures_ = saved ? 0 : failures_ + 1;
  if (saved) session_.progress.saved_step = save->request.step;
  if (session_.env.rank == 0 && saved) ReportSaved(*save);
  // Any other failure ends training, and is told as that.
  if (session_.env.rank == 0 && save->failure.exit_code == contract::kExitStorage) ReportFailed(*save);
  if (!saved) return Fails(save->failure);
  return {};
}

void Saver::ReportSaved(const Save& save) {
  const checkpoint::CommitInfo& info = save.committed;
  if (!info.replaced.empty()) observe::Warn("replaced a bad checkpoint: " + info.replaced);
  if (info.kept_existing) observe::Warn(c10::str("kept the checkpoint of step ", info.step, " that was there"));
  observe::CheckpointStatus status;
  status.step = info.step;
  status.bytes = info.bytes;
  const double seconds = Seconds(save.begin, save.copied) + save.write_seconds;
  status.seconds = seconds;
  status.time = FormatTime(save.request.time);
  const double stall = save.awaited ? seconds : save.stall_seconds;
  status.stall_seconds = stall;
  status.write_seconds = save.write_seconds;
  status.free_bytes = save.free_bytes;
  status.directory_bytes = save.directory_bytes;
  observe::Info(c10::str("checkpoint of step ", info.step, " written: ", info.bytes, " bytes in ", seconds,
                         " s, for which training stood still ", stall, " s"));
  session_.report->status().checkpoint = std::move(status);
  if (!save.awaited) cadence_.Saved(seconds, stall);
  if (verifier_ && session_.job.checkpoint->verify_after_save) verifier_->Look(info.step);
  ReportProgress();
  session_.report->Flush();
}

void Saver::AwaitVerified() {
  if (!verifier_) return;
  session_.report->Phase(contract::phase::kCheckpointing);
  verifier_->Finish();
  ReportProgress();
}

// What can change with every step; it goes out with the next status.
void Saver::ReportProgress() {
  auto& status = session_.report->status().checkpoint;
  const auto interval = cadence_.interval_seconds();
  const auto next = cadence_.NextStep(session_.progress.step, Now());
  if (!status && !interval && !next) return;
  if (!status) status.emplace();
  status->every_seconds = interval;
  status->cost_seconds = cadence_.cost_seconds();
  status->next_step = next && *next < session_.job.training.steps ? next : session_.job.training.steps;
  if (!verifier_ || status->time.empty()) return;
  if (const auto found = verifier_->Found(status->step)) {
    status->verified = found->good;
    status->verify_seconds = found->seconds;
  }
  status->damage = verifier_->Damage();
}

void Saver::ReportFailed(const Save& save) {
  auto& status = session_.report->status().checkpoint;
  if (!status) status.emplace();
  status->failures = failures_;
  status->failure = save.failure.message;
  if (save.free_bytes) status->free_bytes = save.free_bytes;
  observe::Warn(save.failure.message + "; the last checkpoint stays");
  session_.report->Flush();
}

Outcome<void> Save(Session& s) {
  if (!s.job.checkpoint) return {};
  s.report->Phase(contract::phase::kCheckpointing);
  if (!s.saver) s.saver = std::make_unique<Saver>(s);
  return s.saver->SaveNow();
}

}  // namespace trainyard::loop
