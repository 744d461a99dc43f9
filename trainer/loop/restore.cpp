#include "trainer/loop/restore.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/clock.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/loop/determinism.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/state.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The checkpoint to start from; empty path: from the beginning.
struct Choice {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;       // on rank 0
  int64_t created_ms = 0;  // on rank 0
};

Outcome<void> TakeOver(const Session& s) {
  const auto taken = checkpoint::TakeOver(s.CheckpointRoot(), {s.env.uid, s.env.attempt, s.env.round});
  if (!taken) return Fails(WriteFailure(taken.error(), "cannot use the checkpoint directory"));
  for (const std::string& name : taken->fenced) observe::Info("took over from " + name);
  for (const std::string& warning : taken->warnings) observe::Warn(warning);
  return {};
}

// True when the newest checkpoint was made by this job while it followed the same directive.
bool IsOwnHistory(const Session& s, const checkpoint::CheckpointInfo& newest) {
  if (newest.job_uid != s.env.uid) return false;
  const auto reader = checkpoint::Reader::Open(newest.path);
  if (!reader || !reader->train_state().contains("resume")) return false;
  return reader->train_state()["resume"] == ResumeDirective(*s.job.checkpoint);
}

// Moves later checkpoints out of the way of what training will write from `step` on.
Outcome<void> SetAside(const Session& s, int64_t step) {
  const auto moved = checkpoint::AbandonLater(s.CheckpointRoot(), step, s.env.attempt);
  if (!moved) return Fails(WriteFailure(moved.error(), "cannot move later checkpoints aside"));
  for (const int64_t later : *moved) observe::Info(c10::str("moved the checkpoint of step ", later, " aside"));
  return {};
}

// On rank 0. `below`: checkpoints of this step and later were found to be damaged.
Outcome<Choice> Choose(const Session& s, int64_t below) {
  const config::Checkpoint& checkpoint = *s.job.checkpoint;
  const std::string root = s.CheckpointRoot();
  const auto newest = checkpoint::NewestValid(root, below);
  if (newest) {
    for (const std::string& line : newest->skipped) observe::Warn("skipped a damaged checkpoint: " + line);
  }
  const bool follow = checkpoint.resume == config::Resume::kLatest || (newest && IsOwnHistory(s, *newest));
  if (follow) {
    if (newest) return Choice{newest->step, newest->path, newest->bytes, newest->created_ms};
    if (newest.error().code == ErrorCode::kNotFound && below == kNoLimit) return Choice{};
    return Fails(ReadFailure(newest.error(), "no checkpoint can be read"));
  }
  // All of our own are damaged: starting over in silence would hide it.
  if (!newest && below != kNoLimit) return Fails(ReadFailure(newest.error(), "no checkpoint can be read"));
  const int64_t from = checkpoint.resume == config::Resume::kStep ? checkpoint.resume_step : -1;
  Choice choice;
  if (from >= 0) {
    const auto found = checkpoint::NewestValid(root, from + 1);
    if (!found || found->step != from || below <= from) {
      const std::string problem = below <= from            ? "its data is damaged"
                                  : !found                 ? found.error().message
                                  : found->skipped.empty() ? "it is not there"
                                                           : found->skipped.front();
      return Fails(contract::kExitCheckpoint,
                   "the checkpoint to resume from, step " + std::to_string(from) + ", cannot be read: " + problem);
    }
    choice = {found->step, found->path, found->bytes, found->created_ms};
  }
  if (auto aside = SetAside(s, from); !aside) return Fails(aside.error());
  return choice;
}

// Said aloud: a start from zero where a checkpoint was expected must be seen.
Outcome<void> FromTheBeginning(Session& s) {
  s.report->status().resumed_from_step = 0;
  if (s.job.checkpoint && s.env.rank == 0) observe::Info("no checkpoint to resume from: training starts at step 0");
  return {};
}

// What became of reading on one rank.
enum class Read { kFine = 0, kDamaged = 1 };

Outcome<Read> ReadShards(Session& s, const Choice& choice, Progress& progress) {
  const std::string doing = "checkpoint of step " + std::to_string(choice.step);
  auto reader = checkpoint::Reader::Open(choice.path);
  if (!reader && reader.error().code != ErrorCode::kDataLoss) return Fails(ReadFailure(reader.error(), doing));
  Status read = Status();
  if (reader) {
    auto parsed = ParseTrainState(s, reader->train_state());
    if (!parsed) return Fails(Failure{parsed.error().exit_code, doing + ": " + parsed.error().message});
    progress = std::move(*parsed);
    if (auto same = TakeDeterminism(s, reader->train_state()); !same) {
      return Fails(Failure{same.error().exit_code, doing + ": " + same.error().message});
    }
    StateSlices slices = SlicesOf(*s.engine);
    std::vector<checkpoint::TensorSlice> wanted = std::move(slices.model);
    wanted.insert(wanted.end(), slices.optim.begin(), slices.optim.end());
    read = reader->Read(wanted);
    if (read) StoreSlices(slices);
  } else {
    read = Fail(reader.error());
  }
  if (read) return Read::kFine;
  if (read.error().code != ErrorCode::kDataLoss) return Fails(ReadFailure(read.error(), doing));
  observe::Warn(c10::str("rank ", s.env.rank, ": skipped a damaged checkpoint: ", read.error().message));
  return Read::kDamaged;
}

}  // namespace

Outcome<void> Restore(Session& s) {
  if (!s.job.checkpoint) return FromTheBeginning(s);
  s.report->Phase(contract::phase::kRestoring);
  if (s.env.rank == 0) {
    if (auto taken = TakeOver(s); !taken) return taken;
  }
  for (int64_t below = kNoLimit;;) {
    Choice choice;
    if (s.env.rank == 0) {
      auto chosen = Choose(s, below);
      if (!chosen) return Fails(chosen.error());
      choice = std::move(*chosen);
    }
    const std::string text = s.env.rank == 0 ? std::to_string(choice.step) + " " + choice.path : "";
    const std::string agreed = BroadcastText(*s.world, text, "choice of checkpoint", kStorageDeadline);
    choice.step = std::stoll(agreed);
    choice.path = agreed.substr(agreed.find(' ') + 1);
    if (choice.path.empty()) return FromTheBeginning(s);

    Progress progress;
    const auto read = ReadShards(s, choice, progress);
    if (!read) return Fails(read.error());
    std::vector<double> damaged = {static_cast<double>(*read)};
    SumInOrder(*s.world, damaged, "checkpoint read", kStorageDeadline);
    if (damaged[0] > 0) {
      below = choice.step;
      continue;
    }
    if (s.env.rank == 0 && below != kNoLimit) {
      if (auto aside = SetAside(s, choice.step); !aside) return aside;
    }
    s.engine->OnLoaded();
    s.progress = progress;
    auto& status = s.report->status();
    status.resumed_from_step = progress.step;
    status.step = progress.step;
    status.checkpoint = observe::CheckpointStatus{
        .step = choice.step, .bytes = choice.bytes, .time = FormatTime(TimePoint(Milliseconds(choice.created_ms)))};
    status.loss = progress.loss;
    status.initial_validation_loss = progress.initial_validation_loss;
    status.validation_loss = progress.validation_loss;
    observe::Info(c10::str("resumed from step ", progress.step, ": ", choice.path));
    return {};
  }
}

}  // namespace trainyard::loop
