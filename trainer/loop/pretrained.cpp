#include "trainer/loop/pretrained.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/source_files.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/live_state.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

checkpoint::Fence FenceOf(const Session& s) { return {s.env.uid, s.env.attempt, s.env.round}; }

Failure SourceFailure(const Error& error) {
  const std::string message = "model.pretrained: " + error.message;
  const bool storage = error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
  return {storage ? contract::kExitStorage : contract::kExitData, message};
}

}  // namespace

Outcome<void> StartFromPretrained(Session& s) {
  s.report->Phase(contract::phase::kRestoring);
  const auto begin = std::chrono::steady_clock::now();
  const std::string directory = s.job.model.pretrained->Resolve(s.env.volume_root);
  auto source = checkpoint::ForeignModel::Open(directory, s.description);
  if (!source) return Fails(SourceFailure(source.error()));
  const Status read =
      ReadInto(*s.engine, /*weights_only=*/true, [&](const auto& slices) { return source->Read(slices); });
  if (!read) return Fails(SourceFailure(read.error()));
  if (s.env.rank == 0 && s.job.checkpoint) {
    const Status kept = checkpoint::KeepSourceFiles({directory, "", *source}, s.CheckpointRoot(), FenceOf(s),
                                                    checkpoint::PosixFileSystem());
    if (!kept) return Fails(WriteFailure(kept.error(), "cannot carry the files of the model along"));
  }
  std::vector<double> bytes(static_cast<size_t>(s.env.world), 0.0);
  bytes[static_cast<size_t>(s.env.rank)] = static_cast<double>(source->bytes_read());
  SumInOrder(*s.world, bytes, "weights read", kStorageDeadline);
  s.engine->OnLoaded();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto total = static_cast<int64_t>(std::accumulate(bytes.begin(), bytes.end(), 0.0));
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  s.report->status().resumed_from_step = 0;
  s.report->status().restored = observe::RestoredStatus{seconds, total, static_cast<int64_t>(*most)};
  if (s.env.rank == 0) {
    observe::Info(c10::str("training starts at step 0 with the weights of ", directory, ": ", total,
                           " bytes read, by each rank ", static_cast<int64_t>(*least), " to ",
                           static_cast<int64_t>(*most)));
  }
  return {};
}

Outcome<void> TakeSourceFiles(const Session& s, const std::string& from_root) {
  const Status copied =
      checkpoint::CopySourceFiles(from_root, s.CheckpointRoot(), FenceOf(s), checkpoint::PosixFileSystem());
  if (!copied) return Fails(WriteFailure(copied.error(), "cannot carry the files of the model along"));
  return {};
}

}  // namespace trainyard::loop
