#include "trainer/loop/restore.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
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
#include "trainer/loop/export.h"
#include "trainer/loop/live_state.h"
#include "trainer/loop/optimizer.h"
#include "trainer/loop/pretrained.h"
#include "trainer/loop/state.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The checkpoint to start from; empty path: from the beginning.
struct Choice {
  int64_t step = 0;
  bool foreign = false;  // of resumeFrom
  std::string path;
  int64_t bytes = 0;       // on rank 0
  int64_t created_ms = 0;  // on rank 0
};

Outcome<void> TakeOver(const Session& s) {
  const auto taken = checkpoint::TakeOver(s.CheckpointRoot(), {s.env.uid, s.env.attempt, s.env.round});
  if (!taken) {
    // Of an earlier attempt's claim it is known that the job could write there: then the disk has changed.
    const auto owner = checkpoint::OwnerJob(s.CheckpointRoot());
    const auto failure = owner && *owner == s.env.uid ? WriteFailure : FirstWriteFailure;
    return Fails(failure(taken.error(), "cannot use the checkpoint directory"));
  }
  for (const std::string& name : taken->fenced) observe::Info("took over from " + name);
  for (const std::string& warning : taken->warnings) observe::Warn(warning);
  return {};
}

// On rank 0, before anything is claimed: a job that cannot go on from what another one left must not take the directory
// from it.
Outcome<void> RefuseHistoryOfOthers(const Session& s) {
  if (s.job.checkpoint->resume != config::Resume::kLatest) return {};  // it asks for the directory whatever is there
  const auto newest = checkpoint::NewestValid(s.CheckpointRoot());
  if (!newest || newest->job_uid == s.env.uid) return {};
  const auto reader = checkpoint::Reader::Open(newest->path);
  if (!reader) return {};  // Restore tells it better
  const auto fits = ParseTrainState(s, reader->train_state());
  if (fits) return {};
  return Fails(fits.error().exit_code, "checkpoint of step " + std::to_string(newest->step) + " of job " +
                                           newest->job_uid + " in " + s.CheckpointRoot() + ": " + fits.error().message);
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

// Reading found that some cannot be used: what is told when there is no other. `damage`: what was wrong with them.
Failure NoneLeft(const std::string& root, const Error& error, const std::vector<std::string>& damage) {
  if (error.code != ErrorCode::kNotFound || damage.empty()) return ReadFailure(error, "no checkpoint can be read");
  return {contract::kExitCheckpoint, "no checkpoint can be read: every one in " + root +
                                         " is damaged; the oldest that was tried: " + damage.back()};
}

// On rank 0: the checkpoint of `root` with step `from`, of which those of `below` and later were found to be damaged.
Outcome<checkpoint::CheckpointInfo> ChooseStep(const std::string& root, int64_t from, int64_t below) {
  auto found = checkpoint::NewestValid(root, from + 1);
  if (found && found->step == from && below > from) return std::move(*found);
  const std::string problem = below <= from            ? "its data is damaged"
                              : !found                 ? found.error().message
                              : found->skipped.empty() ? "it is not there"
                                                       : found->skipped.front();
  return Fails(contract::kExitCheckpoint, "the checkpoint to resume from, step " + std::to_string(from) + " of " +
                                              root + ", cannot be read: " + problem);
}

// On rank 0: where a job without a checkpoint of its own starts. What it was told to start from must be there.
Outcome<Choice> ChooseForeign(const Session& s, int64_t below, const std::vector<std::string>& damage) {
  const auto& from = s.job.checkpoint->resume_from;
  if (!from) return Choice{};
  const std::string root = from->directory.Resolve(s.env.volume_root);
  checkpoint::CheckpointInfo found;
  if (from->step > 0) {
    auto chosen = ChooseStep(root, from->step, below);
    if (!chosen) return Fails(chosen.error());
    found = std::move(*chosen);
  } else {
    auto newest = checkpoint::NewestValid(root, below);
    if (!newest) {
      const std::string why = damage.empty() ? newest.error().message : NoneLeft(root, newest.error(), damage).message;
      return Fails(contract::kExitCheckpoint,
                   "checkpoint.resumeFrom: " + why + "; training does not start from nothing in its place");
    }
    found = std::move(*newest);
  }
  for (const std::string& line : found.skipped) observe::Warn("skipped a damaged checkpoint: " + line);
  return Choice{found.step, true, found.path, found.bytes, found.created_ms};
}

// On rank 0. `below`: checkpoints of this step and later were found to be damaged, as `damage` says; `foreign`: those
// of resumeFrom.
Outcome<Choice> Choose(const Session& s, int64_t below, bool foreign, const std::vector<std::string>& damage) {
  const config::Checkpoint& checkpoint = *s.job.checkpoint;
  const std::string root = s.CheckpointRoot();
  if (foreign) return ChooseForeign(s, below, damage);
  const auto newest = checkpoint::NewestValid(root, below);
  if (newest) {
    for (const std::string& line : newest->skipped) observe::Warn("skipped a damaged checkpoint: " + line);
  }
  const bool follow = checkpoint.resume == config::Resume::kLatest || (newest && IsOwnHistory(s, *newest));
  if (follow) {
    if (newest) return Choice{newest->step, false, newest->path, newest->bytes, newest->created_ms};
    if (newest.error().code == ErrorCode::kNotFound && below == kNoLimit) return ChooseForeign(s, below, damage);
    return Fails(NoneLeft(root, newest.error(), damage));
  }
  // All of our own are damaged: starting over in silence would hide it.
  if (!newest && below != kNoLimit) return Fails(NoneLeft(root, newest.error(), damage));
  const int64_t from = checkpoint.resume == config::Resume::kStep ? checkpoint.resume_step : -1;
  Choice choice;
  if (from >= 0) {
    auto found = ChooseStep(root, from, below);
    if (!found) return Fails(found.error());
    choice = {found->step, false, found->path, found->bytes, found->created_ms};
  }
  if (auto aside = SetAside(s, from); !aside) return Fails(aside.error());
  return from >= 0 ? Outcome<Choice>(choice) : ChooseForeign(s, below, damage);
}

// Said aloud: a start from zero where a checkpoint was expected must be seen.
Outcome<void> FromTheBeginning(Session& s) {
  if (s.job.model.pretrained) return StartFromPretrained(s);
  s.report->status().resumed_from_step = 0;
  if (s.job.checkpoint && s.env.rank == 0) observe::Info("no checkpoint to resume from: training starts at step 0");
  return {};
}

// The learning rate is the job's, not the checkpoint's: where the two differ, who reads the log shall know.
void SayRateChanges(const Session& s, const nlohmann::json& state) {
  if (s.env.rank != 0) return;
  for (const std::string& change : RateChanges(state, s.job.training)) observe::Info("since the checkpoint " + change);
}

// What became of reading on one rank.
struct Read {
  std::string damage;  // file, tensor, rank; empty: everything is right
  int64_t bytes = 0;   // read from files
};

// What train_state.json says, for a checkpoint of which everything is taken or the weights alone.
Outcome<Progress> TakeState(Session& s, const Choice& choice, const nlohmann::json& state, bool weights_only) {
  if (weights_only) {
    if (auto same = CheckModel(s, state, /*weights_only=*/true); !same) return Fails(same.error());
    return Progress{};
  }
  auto parsed = ParseTrainState(s, state);
  if (!parsed) {
    std::string message = parsed.error().message;
    // An import says that itself.
    if (choice.foreign && !state.value("weightsOnly", false))
      message += "; or take the weights alone with checkpoint.resumeFrom.weightsOnly";
    return Fails(parsed.error().exit_code, message);
  }
  if (parsed->step != choice.step) {
    return Fails(contract::kExitCheckpoint, "train_state.json is of step " + std::to_string(parsed->step));
  }
  if (auto same = TakeDeterminism(s, state); !same) return Fails(same.error());
  SayRateChanges(s, state);
  if (choice.foreign) parsed->saved_step.reset();  // it is not in this job's directory
  return parsed;
}

Outcome<Read> ReadShards(Session& s, const Choice& choice, Progress& progress) {
  const std::string doing = "checkpoint of step " + std::to_string(choice.step);
  const bool weights_only = choice.foreign && s.job.checkpoint->resume_from->weights_only;
  auto reader = checkpoint::Reader::Open(choice.path);
  if (!reader && reader.error().code != ErrorCode::kDataLoss) return Fails(ReadFailure(reader.error(), doing));
  Status read = Status();
  if (reader) {
    auto taken = TakeState(s, choice, reader->train_state(), weights_only);
    if (!taken) return Fails(Failure{taken.error().exit_code, doing + ": " + taken.error().message});
    progress = std::move(*taken);
    read = ReadInto(*s.engine, weights_only ? Part::kTrainedWeights : Part::kTrained,
                    [&](const auto& slices) { return reader->Read(slices); });
  } else {
    read = Fail(reader.error());
  }
  const int64_t bytes = reader ? reader->bytes_read() : 0;
  if (read) return Read{"", bytes};
  if (read.error().code != ErrorCode::kDataLoss) return Fails(ReadFailure(read.error(), doing));
  observe::Warn(c10::str("rank ", s.env.rank, ": skipped a damaged checkpoint: ", read.error().message));
  return Read{read.error().message, bytes};
}

// What all ranks have come to: the session goes on from there.
void GoOn(Session& s, const Choice& choice, const Progress& progress, double seconds,
          const std::vector<double>& bytes) {
  s.engine->OnLoaded();
  s.progress = progress;
  s.loaded_at = std::chrono::steady_clock::now();
  auto& status = s.report->status();
  status.resumed_from_step = progress.step;
  status.step = progress.step;
  status.restored =
      observe::RestoredStatus{seconds, static_cast<int64_t>(std::accumulate(bytes.begin(), bytes.end(), 0.0)),
                              static_cast<int64_t>(*std::max_element(bytes.begin(), bytes.end()))};
  if (!choice.foreign) {
    status.checkpoint = observe::CheckpointStatus{
        .step = choice.step, .bytes = choice.bytes, .time = FormatTime(TimePoint(Milliseconds(choice.created_ms)))};
  }
  status.loss = progress.loss;
  status.initial_validation_loss = progress.initial_validation_loss;
  status.validation_loss = progress.validation_loss;
  const bool weights_only = choice.foreign && s.job.checkpoint->resume_from->weights_only;
  observe::Info(weights_only ? c10::str("took the weights of step ", choice.step, " of ", choice.path,
                                        "; optimizer, learning rate, data and step start afresh")
                             : c10::str("resumed from step ", progress.step, ": ", choice.path));
}

}  // namespace

Outcome<void> Restore(Session& s) {
  const auto begin = std::chrono::steady_clock::now();
  // Before the directory is claimed: whose adapters are in it is seen by their base.
  if (auto base = ReadBase(s); !base) return base;
  if (!s.job.checkpoint) return FromTheBeginning(s);
  s.report->Phase(contract::phase::kRestoring);
  if (s.env.rank == 0) {
    if (auto refused = RefuseHistoryOfOthers(s); !refused) return refused;
    if (auto place = CheckExportPlace(s); !place) return place;
    if (auto taken = TakeOver(s); !taken) return taken;
  }
  bool foreign = false;
  std::vector<std::string> damage;  // on rank 0: what the ranks have found, checkpoint by checkpoint
  for (int64_t below = kNoLimit;;) {
    Choice choice;
    if (s.env.rank == 0) {
      auto chosen = Choose(s, below, foreign, damage);
      if (!chosen) return Fails(chosen.error());
      choice = std::move(*chosen);
    }
    const std::string text =
        s.env.rank == 0 ? std::to_string(choice.step) + (choice.foreign ? " f" : " o") + choice.path : "";
    const std::string agreed = BroadcastText(*s.world, text, "choice of checkpoint", kStorageDeadline);
    choice.step = std::stoll(agreed);
    choice.foreign = foreign = agreed[agreed.find(' ') + 1] == 'f';
    choice.path = agreed.substr(agreed.find(' ') + 2);
    if (choice.path.empty()) return FromTheBeginning(s);

    Progress progress;
    const auto read = ReadShards(s, choice, progress);
    if (!read) return Fails(read.error());
    // In places of their own: who read how much, and whether anyone met damage.
    std::vector<double> told(static_cast<size_t>(s.env.world) + 1, 0.0);
    const int64_t bytes = read->bytes + (s.base ? s.base->bytes_read : 0);
    told[static_cast<size_t>(s.env.rank)] = static_cast<double>(bytes);
    told.back() = read->damage.empty() ? 0 : 1;
    SumInOrder(*s.world, told, "checkpoint read", kStorageDeadline);
    if (told.back() > 0) {
      below = choice.step;
      for (std::string& text : GatherTexts(*s.world, read->damage, "damage found", kStorageDeadline)) {
        if (!text.empty()) damage.push_back(std::move(text));
      }
      continue;
    }
    if (s.env.rank == 0 && below != kNoLimit && !choice.foreign) {
      if (auto aside = SetAside(s, choice.step); !aside) return aside;
    }
    if (s.env.rank == 0 && choice.foreign) {
      const std::string from = s.job.checkpoint->resume_from->directory.Resolve(s.env.volume_root);
      if (auto taken = TakeSourceFiles(s, from); !taken) return taken;
    }
    told.pop_back();
    GoOn(s, choice, progress, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), told);
    return {};
  }
}

}  // namespace trainyard::loop
