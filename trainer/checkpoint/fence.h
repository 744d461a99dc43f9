// Who may write into a checkpoint directory. Saves are staged under `.staging/<uid>-<attempt>/` (`.<round>` appended
// from the first restart on), a directory that only TakeOver makes. A newer attempt renames it away before it does
// anything else, so that a save or a commit of the older one fails with ENOENT, whatever the clock says and however
// late it wakes.
//
// Order of owners: the attempts (then rounds) of one job in their order; of two jobs the one that came to the directory
// later. Claims are kept as empty files under `.staging/owners/`, so that an older owner that calls later is refused.
// Thread-safety: free functions, safe against each other from any number of processes.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {

struct TakeOverInfo {
  std::vector<std::string> fenced;    // names of the staging directories that were renamed away
  std::vector<std::string> warnings;  // leftovers that could not be removed; the next owner tries again
};

// Makes `fence` the owner of `root` (made when missing), then removes what dead owners left. Called by rank 0 at the
// start of every attempt and round, before the others save. Idempotent for the same fence: an unfinished save of it is
// dropped. Errors: kFailedPrecondition when a newer owner is there; kInvalidArgument for an unusable UID; of the file
// system.
Result<TakeOverInfo> TakeOver(const std::string& root, const Fence& fence, FileSystem& fs = PosixFileSystem());

// UID of the job that came to `root` last, by the claims there; empty: none has, or there is no such directory. Errors:
// of the file system.
Result<std::string> OwnerJob(const std::string& root, FileSystem& fs = PosixFileSystem());

// `root/.staging/<uid>-<attempt>`, where this owner stages its saves.
std::string StagingDirectory(const std::string& root, const Fence& fence);
// kInvalidArgument when the UID cannot be part of a file name or a number is negative.
Status CheckFence(const Fence& fence);
// The error of an owner whose staging directory is gone, which names who has the directory now: kFailedPrecondition.
Error FencedError(const std::string& root, const Fence& fence, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
