#include "trainer/loop/pretrained.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "trainer/checkpoint/base_hash.h"
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

std::string Directory(const Session& s) { return s.job.model.pretrained->Resolve(s.env.volume_root); }

Outcome<checkpoint::ForeignModel> OpenSource(const Session& s) {
  auto source = checkpoint::ForeignModel::Open(Directory(s), s.description);
  if (!source) return Fails(SourceFailure(source.error()));
  return std::move(*source);
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Outcome<void> ReadBase(Session& s) {
  if (!s.adapter) return {};
  s.report->Phase(contract::phase::kRestoring);
  const auto begin = std::chrono::steady_clock::now();
  auto source = OpenSource(s);
  if (!source) return Fails(source.error());
  Base base;
  base.reference = checkpoint::SizeOfBase(*source, s.description, Directory(s));
  const Status read = ReadInto(*s.engine, Part::kFrozen,
                               [&](const auto& slices) { return source->Read(slices, &base.reference.hash); });
  if (!read) return Fails(SourceFailure(read.error()));
  at::Tensor sum = at::full({1}, static_cast<int64_t>(base.reference.hash), at::kLong);
  // One rank may wait for its disk for longer than another.
  s.world->AllReduce(sum, dist::Reduce::kInt64, {.deadline = kStorageDeadline, .label = "hash of the base"})->Wait();
  base.reference.hash = static_cast<uint64_t>(sum.item<int64_t>());
  base.bytes_read = source->bytes_read();
  base.seconds = SecondsSince(begin);
  if (s.env.rank == 0) {
    observe::Info(c10::str("adapter of rank ", s.adapter->rank, " on ", base.reference.directory, ", hash ",
                           checkpoint::HexDigest(base.reference.hash)));
  }
  s.base = std::move(base);
  return {};
}

Outcome<void> StartFromPretrained(Session& s) {
  s.report->Phase(contract::phase::kRestoring);
  const auto begin = std::chrono::steady_clock::now();
  auto source = OpenSource(s);
  if (!source) return Fails(source.error());
  if (!s.base) {
    const Status read =
        ReadInto(*s.engine, Part::kTrainedWeights, [&](const auto& slices) { return source->Read(slices); });
    if (!read) return Fails(SourceFailure(read.error()));
  }
  if (s.env.rank == 0 && s.job.checkpoint) {
    const Status kept = checkpoint::KeepSourceFiles({Directory(s), "", *source}, s.CheckpointRoot(), FenceOf(s),
                                                    checkpoint::PosixFileSystem());
    if (!kept) return Fails(WriteFailure(kept.error(), "cannot carry the files of the model along"));
  }
  std::vector<double> bytes(static_cast<size_t>(s.env.world), 0.0);
  const int64_t read_here = s.base ? s.base->bytes_read : source->bytes_read();
  bytes[static_cast<size_t>(s.env.rank)] = static_cast<double>(read_here);
  SumInOrder(*s.world, bytes, "weights read", kStorageDeadline);
  s.engine->OnLoaded();
  const double seconds = SecondsSince(begin) + (s.base ? s.base->seconds : 0);
  const auto total = static_cast<int64_t>(std::accumulate(bytes.begin(), bytes.end(), 0.0));
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  s.report->status().resumed_from_step = 0;
  s.report->status().restored = observe::RestoredStatus{seconds, total, static_cast<int64_t>(*most)};
  if (s.env.rank == 0) {
    observe::Info(c10::str("training starts at step 0 with the weights of ", Directory(s), ": ", total,
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
