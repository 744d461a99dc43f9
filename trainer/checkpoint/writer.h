// Saving: every rank writes its own shards, then rank 0 commits. Nothing is a checkpoint before the commit, which is
// one rename. Thread-safety: free functions; ranks call WriteShards concurrently, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {

struct SaveRequest {
  std::string root;  // checkpoint directory of the job; TakeOver(root, fence) came first
  int64_t step = 0;
  Fence fence;
  int rank = 0;
  int world = 1;
  std::vector<TensorSlice> model;  // this rank's boxes; together the ranks' boxes tile every tensor
  std::vector<TensorSlice> optim;
  // Unless empty, asked for the bytes of each box with elements right before they are written, first those of `model`
  // in their order, then those of `optim`; TensorSlice::data is not looked at. What it returns is read until the next
  // call. Its error ends the writing.
  std::function<Result<const void*>(const TensorSlice&)> fetch;
  TimePoint time{};  // when the save began; used by Commit, shown by `checkpoints list`
};

struct RankReport {
  int64_t bytes = 0;     // written by this rank, hashes included
  std::string manifest;  // this rank's part of the manifest (JSON), for Commit
};

struct CommitInfo {
  int64_t step = 0;
  std::string path;            // root/step-00000200
  int64_t bytes = 0;           // of the whole checkpoint, manifest included
  bool kept_existing = false;  // a valid checkpoint of that step was there and was kept; the new one was dropped
  std::string replaced;        // what was wrong with the one of that step that was replaced; empty if there was none
};

// Writes and syncs this rank's files in the staging directory. A rank without elements in a group writes no file there.
// A tensor without elements on this rank may be listed (then it only tells its global shape) or left out.
// Errors: kInvalidArgument (bad box, a name twice); kFailedPrecondition when fenced off; of the file system, such as
// kResourceExhausted for a full disk. After an error the same call may be made again.
Result<RankReport> WriteShards(const SaveRequest& request, FileSystem& fs = PosixFileSystem());

// Rank 0, after every rank's WriteShards: checks that the reports are of all ranks and that the boxes tile every
// tensor, writes train state and manifest, renames the directory into place and syncs. `train_state` is a JSON object
// as text. `reports` are the RankReport::manifest of all ranks in any order; only root, step, fence, world and time of
// the request are used. A checkpoint of the same step that verifies is kept, any other is replaced. Errors:
// kInvalidArgument (reports that do not fit together); kFailedPrecondition when fenced off, even while the rename was
// on its way; of the file system. After an error nothing has been committed.
Result<CommitInfo> Commit(const SaveRequest& request, const std::string& train_state,
                          const std::vector<std::string>& reports, FileSystem& fs = PosixFileSystem());

// Removes what WriteShards of all ranks has staged of a save that is not to be committed. Rank 0, when no rank writes
// any more. Nothing there is fine, also when a newer owner has renamed it away. Errors: of the file system.
Status Discard(const SaveRequest& request, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
