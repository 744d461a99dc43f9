// Removes all checkpoints of a job that is gone. Thread-safety: free functions; safe against writers of the same job,
// which it fences off first, and against another job that takes the directory over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace trainyard::checkpoint {

struct Removal {
  std::vector<std::string> removed;  // names in the directory, sorted: steps and what was set aside
  std::vector<std::string> left;     // names that are none of ours; the directory then stays
  std::vector<std::string> busy;     // steps that somebody reads: all else is done, and another call is needed
};

// Removes steps, abandoned ones and the staging area of `root`, and `root` itself if nothing else is in it. Only job
// `job_uid` may, and only as long as no other job has come to the directory after it. A directory that is not there, or
// in which no job has ever saved, is left as it is: nothing is removed. May be repeated after a crash or an error.
// Errors: kFailedPrecondition when another job owns the directory; kInvalidArgument for an unusable UID; of the file
// system.
Result<Removal> RemoveAll(const std::string& root, const std::string& job_uid, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
