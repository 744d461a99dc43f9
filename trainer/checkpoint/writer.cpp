#include "trainer/checkpoint/writer.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

// What a missing path means: with .staging there but our directory gone, a newer owner renamed it away.
Error Explain(const SaveRequest& request, Error error, FileSystem& fs) {
  if (error.code != ErrorCode::kNotFound) return error;  // who asked for the save says of which step it is
  const bool own = fs.Stat(StagingDirectory(request.root, request.fence)).has_value();
  if (own)
    return {ErrorCode::kUnavailable, error.message + ": part of the save of step " + std::to_string(request.step) +
                                         " has vanished from the staging directory"};
  if (fs.Stat(request.root + "/" + std::string(kStagingDirectory))) {
    return FencedError(request.root, request.fence, fs);
  }
  return {ErrorCode::kNotFound,
          "checkpoint directory " + request.root + " has vanished, or TakeOver was not called: " + error.message};
}

Status CheckRequest(const SaveRequest& request) {
  if (request.step < 0 || request.world < 1 || request.rank < 0 || request.rank >= request.world) {
    return Fail(ErrorCode::kInvalidArgument, "step " + std::to_string(request.step) + ", rank " +
                                                 std::to_string(request.rank) + " of " + std::to_string(request.world) +
                                                 " cannot be saved");
  }
  return CheckFence(request.fence);
}

Status MakeStepDirectory(const std::string& directory, FileSystem& fs) {
  for (const std::string& path :
       {directory, directory + "/" + std::string(kModelGroup), directory + "/" + std::string(kOptimGroup)}) {
    if (Status s = EnsureDirectory(fs, path); !s) return s;
  }
  return {};
}

// Writes one group without syncing it and adds its tensors to the part.
Status WriteGroup(const SaveRequest& request, std::string_view group, const std::vector<TensorSlice>& slices,
                  const std::string& directory, std::set<std::string>& names, Manifest& part,
                  std::vector<WrittenShard>& written, FileSystem& fs) {
  const int64_t first = static_cast<int64_t>(part.tensors.size());
  std::vector<const TensorSlice*> full;
  std::vector<int64_t> index;  // of full[i] in the part
  for (const TensorSlice& slice : slices) {
    if (Status s = CheckSlice(slice); !s) return s;
    if (!names.insert(slice.name).second) {
      return Fail(ErrorCode::kInvalidArgument, "tensor \"" + slice.name + "\" is given twice");
    }
    if (*ElementCount(slice.shape) > 0) {
      if (!request.fetch && slice.data == nullptr)
        return Fail(ErrorCode::kInvalidArgument, "tensor \"" + slice.name + "\" has no data");
      full.push_back(&slice);
      index.push_back(static_cast<int64_t>(&slice - slices.data()) + first);
    }
    part.tensors.push_back({slice.name, std::string(group), slice.dtype, slice.global_shape});
  }
  if (full.empty()) return {};
  Result<WrittenShard> shard = WriteShardFile(directory, group, request.rank, full, request.fetch, fs);
  if (!shard) return Fail(shard.error());
  for (Chunk& chunk : shard->file.chunks) chunk.tensor = index[static_cast<size_t>(chunk.tensor)];
  written.push_back(std::move(*shard));
  return {};
}

// Syncs what was written and adds it to the part.
Status FinishShards(const std::string& directory, Manifest& part, std::vector<WrittenShard>& written, FileSystem& fs) {
  for (WrittenShard& shard : written) {
    if (Status s = shard.Finish(fs); !s) return s;
  }
  for (WrittenShard& shard : written) {
    const std::string group = shard.file.path.substr(0, shard.file.path.find('/'));
    if (Status s = fs.SyncDirectory(directory + "/" + group); !s) return s;
    part.files.push_back(std::move(shard.file));
  }
  return {};
}

// That every file is where rank 0 can see it, at its size: a volume that the pods do not share shows here.
Status CheckVisible(const Manifest& manifest, const std::string& staged, FileSystem& fs) {
  for (const ShardFile& file : manifest.files) {
    const std::pair<std::string, int64_t> parts[] = {{file.path, file.bytes}, {HashPath(file.path), file.hash_bytes}};
    for (const auto& [path, bytes] : parts) {
      Result<FileStat> stat = fs.Stat(staged + "/" + path);
      if (!stat && stat.error().code != ErrorCode::kNotFound) return Fail(stat.error());
      if (stat && stat->bytes == bytes) continue;
      if (!stat && !fs.Stat(staged)) return Fail(stat.error());
      return Fail(ErrorCode::kUnavailable, "rank " + std::to_string(file.rank) + " wrote " + path + " (" +
                                               std::to_string(bytes) + " bytes), but rank 0 sees " +
                                               (stat ? std::to_string(stat->bytes) + " bytes" : "no such file") +
                                               " in " + staged + ": all pods must mount the same volume");
    }
  }
  return {};
}

// Looks at a checkpoint of this step that is already there. Leaves `existing` empty when there is none.
struct Existing {
  bool valid = false;
  std::string problem;
};
Result<std::optional<Existing>> LookAtExisting(const std::string& path, FileSystem& fs) {
  Result<FileStat> stat = fs.Stat(path);
  if (!stat && stat.error().code == ErrorCode::kNotFound) return std::optional<Existing>();
  if (!stat) return Fail(stat.error());
  if (stat->kind != FileKind::kDirectory) {
    return Fail(ErrorCode::kAlreadyExists, path + " is in the way and is not a directory: move it away");
  }
  Result<VerifyReport> report = Verify(path, Check::kEverything, fs);
  if (!report) return Fail(report.error());
  return std::optional<Existing>({report->ok(), report->ok() ? "" : report->problems[0].ToString()});
}

class Committer {
 public:
  Committer(const SaveRequest& request, FileSystem& fs)
      : request_(request),
        fs_(fs),
        staging_(StagingDirectory(request.root, request.fence)),
        staged_(staging_ + "/" + StepDirectory(request.step)) {
    info_.step = request.step;
    info_.path = request.root + "/" + StepDirectory(request.step);
  }

  Result<CommitInfo> Run(const std::string& train_state, Manifest manifest) {
    if (Result<FileStat> own = fs_.Stat(staging_); !own) return Fail(own.error());
    Result<std::optional<Existing>> existing = LookAtExisting(info_.path, fs_);
    if (!existing) return Fail(existing.error());
    if (*existing && (*existing)->valid) return Keep(manifest);

    if (Status s = CheckVisible(manifest, staged_, fs_); !s) return Fail(s.error());
    if (Status s = Complete(train_state, manifest); !s) return Fail(s.error());
    const std::string replaced = staging_ + "/replaced-" + StepDirectory(request_.step);
    if (*existing) {
      info_.replaced = (*existing)->problem;
      if (Status s = RemoveTree(fs_, replaced); !s) return Fail(s.error());
      if (Status s = fs_.Rename(info_.path, replaced); !s) return Fail(s.error());
    }
    if (Status s = fs_.Rename(staged_, info_.path); !s) return Fail(s.error());
    if (Status s = SyncBoth(); !s) return Fail(s.error());
    if (Status s = RemoveTree(fs_, replaced); !s) return Fail(s.error());
    return std::move(info_);
  }

 private:
  Result<CommitInfo> Keep(const Manifest& manifest) {
    info_.kept_existing = true;
    info_.bytes = manifest.bytes();
    if (Status s = RemoveTree(fs_, staged_); !s) return Fail(s.error());
    // An earlier call may have renamed it and failed after that.
    if (Status s = SyncBoth(); !s) return Fail(s.error());
    return std::move(info_);
  }

  Status Complete(const std::string& train_state, Manifest& manifest) {
    if (Status s = WriteWholeFile(fs_, staged_ + "/" + std::string(kTrainStateFile), train_state); !s) return s;
    manifest.train_state_bytes = static_cast<int64_t>(train_state.size());
    manifest.train_state_digest = Digest(train_state);
    manifest.created_ms = request_.time.time_since_epoch().count();
    const std::string text = EncodeManifest(manifest);
    info_.bytes = manifest.bytes() + static_cast<int64_t>(text.size());
    if (Status s = WriteWholeFile(fs_, staged_ + "/" + std::string(kManifestFile), text); !s) return s;
    return fs_.SyncDirectory(staged_);
  }

  Status SyncBoth() {
    if (Status s = fs_.SyncDirectory(request_.root); !s) return s;
    return fs_.SyncDirectory(staging_);
  }

  const SaveRequest& request_;
  FileSystem& fs_;
  const std::string staging_, staged_;
  CommitInfo info_;
};

}  // namespace

Result<RankReport> WriteShards(const SaveRequest& request, FileSystem& fs) {
  if (Status s = CheckRequest(request); !s) return Fail(s.error());
  const std::string directory = StagingDirectory(request.root, request.fence) + "/" + StepDirectory(request.step);
  Manifest part;
  part.step = request.step;
  part.world = request.world;
  part.fence = request.fence;
  std::set<std::string> names;
  Status status = MakeStepDirectory(directory, fs);
  std::vector<WrittenShard> written;
  if (status) status = WriteGroup(request, kModelGroup, request.model, directory, names, part, written, fs);
  if (status) status = WriteGroup(request, kOptimGroup, request.optim, directory, names, part, written, fs);
  if (status) status = FinishShards(directory, part, written, fs);
  if (!status) return Fail(Explain(request, status.error(), fs));
  RankReport report;
  report.bytes = part.bytes();
  report.manifest = EncodePart({request.rank, std::move(part)});
  return report;
}

Result<CommitInfo> Commit(const SaveRequest& request, const std::string& train_state,
                          const std::vector<std::string>& reports, FileSystem& fs) {
  if (Status s = CheckRequest(request); !s) return Fail(s.error());
  if (!nlohmann::json::parse(train_state, nullptr, /*allow_exceptions=*/false).is_object()) {
    return Fail(ErrorCode::kInvalidArgument, "the train state is not a JSON object");
  }
  std::vector<RankPart> parts;
  for (const std::string& report : reports) {
    Result<RankPart> part = DecodePart(report);
    if (!part) return Fail(part.error());
    parts.push_back(std::move(*part));
  }
  Result<Manifest> manifest = MergeParts(parts);
  if (!manifest) return Fail(manifest.error());
  const Fence& f = manifest->fence;
  if (manifest->step != request.step || manifest->world != request.world || f.job_uid != request.fence.job_uid ||
      f.attempt != request.fence.attempt || f.round != request.fence.round) {
    return Fail(ErrorCode::kInvalidArgument, "the reports are not of the save that is to be committed");
  }
  Result<CommitInfo> info = Committer(request, fs).Run(train_state, std::move(*manifest));
  if (!info) return Fail(Explain(request, info.error(), fs));
  return info;
}

Status Discard(const SaveRequest& request, FileSystem& fs) {
  return RemoveTree(fs, StagingDirectory(request.root, request.fence) + "/" + StepDirectory(request.step));
}

}  // namespace trainyard::checkpoint
