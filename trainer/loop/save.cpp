#include "trainer/loop/save.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/clock.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/state.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

// Old checkpoints that cannot be removed cost space, not the job.
void PruneOld(const Session& s) {
  if (s.job.checkpoint->keep_last <= 0) return;
  const auto pruned = checkpoint::Prune(s.CheckpointRoot(), s.job.checkpoint->keep_last, {s.progress.step});
  if (!pruned) observe::Warn("old checkpoints stay: " + pruned.error().message);
}

}  // namespace

Outcome<void> Save(Session& s) {
  if (!s.job.checkpoint || s.progress.saved_step == s.progress.step) return {};
  const auto begin = std::chrono::steady_clock::now();
  const std::string doing = "checkpoint of step " + std::to_string(s.progress.step) + " not written";
  s.report->Phase(contract::phase::kCheckpointing);

  StateSlices slices = SlicesOf(*s.engine);
  checkpoint::SaveRequest request;
  request.root = s.CheckpointRoot();
  request.step = s.progress.step;
  request.fence = {s.env.uid, s.env.attempt, s.env.round};
  request.rank = s.env.rank;
  request.world = s.env.world;
  request.model = std::move(slices.model);
  request.optim = std::move(slices.optim);
  request.time = RealClock().Now();
  const auto written = checkpoint::WriteShards(request);
  // A rank that fails leaves, and its peers learn of it by losing it: no round of votes for the rare case.
  if (!written) return Fails(WriteFailure(written.error(), doing));

  const auto reports = GatherTexts(*s.world, written->manifest, "checkpoint reports", kStorageDeadline);
  int64_t bytes = 0;
  if (s.env.rank == 0) {
    const auto committed = checkpoint::Commit(request, TrainStateJson(s), reports);
    if (!committed) return Fails(WriteFailure(committed.error(), doing));
    bytes = committed->bytes;
    if (!committed->replaced.empty()) observe::Warn("replaced a bad checkpoint: " + committed->replaced);
    if (committed->kept_existing)
      observe::Warn(c10::str("kept the checkpoint of step ", s.progress.step, " that was there"));
  }
  s.world->Barrier({.deadline = kStorageDeadline, .label = "checkpoint commit"});
  s.progress.saved_step = s.progress.step;
  if (s.env.rank == 0) {
    PruneOld(s);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    s.report->status().checkpoint =
        observe::CheckpointStatus{s.progress.step, bytes, seconds, FormatTime(request.time)};
    observe::Info(c10::str("checkpoint of step ", s.progress.step, " written: ", bytes, " bytes in ", seconds, " s"));
  }
  return {};
}

}  // namespace trainyard::loop
