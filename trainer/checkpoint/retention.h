// Which checkpoints stay. Every removal begins with a rename out of sight, so that a half-removed checkpoint is never
// seen as one. Thread-safety: free functions, from any process; AbandonLater only by the owner of the directory
// (fence.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

// What stays. Everything newer than the oldest of the `last` newest valid checkpoints does, too.
struct Keep {
  int64_t last = 1;             // valid ones, at least 1
  int64_t every_steps = 0;      // the first one at or after each multiple of this, valid or not; 0: none
  std::vector<int64_t> in_use;  // these steps
  std::vector<int64_t> bad;     // known to be damaged, whatever a look at their structure says
};

// Steps of `all` (as List returns it, newest first) that need not stay, oldest first. Without a valid one: none.
std::vector<int64_t> NotKept(const std::vector<CheckpointInfo>& all, const Keep& keep);

struct PruneInfo {
  std::vector<int64_t> removed;      // oldest first
  std::vector<int64_t> busy;         // would have gone, but somebody reads them (use_lock.h)
  std::vector<CheckpointInfo> left;  // newest first
};
// Removes what `keep` does not keep. Call it after Commit; safe beside the trainer of the directory and beside readers.
// With `owner`, the trainer's, nothing is removed once a newer owner has taken over (fence.h), however late the old one
// wakes. Errors: kInvalidArgument when keep.last < 1 or keep.every_steps < 0; kFailedPrecondition for an owner that is
// none any more; of the file system. By structure alone a flipped bit in tensor data goes unseen: `keep.bad` is for
// those that were found damaged. `known`: see List.
Result<PruneInfo> Prune(const std::string& root, const Keep& keep, Check check = Check::kStructure,
                        FileSystem& fs = PosixFileSystem(), const Fence* owner = nullptr,
                        const std::vector<CheckpointInfo>& known = {});

// Renames the checkpoints after `step` to `root/abandoned-<attempt>/`, for a job that resumes from an older step; they
// stay on disk until a person removes them. Returns the steps moved, oldest first.
Result<std::vector<int64_t>> AbandonLater(const std::string& root, int64_t step, int64_t attempt,
                                          FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
