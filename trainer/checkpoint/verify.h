// Checking a checkpoint without loading it. Thread-safety: free functions from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

struct Problem {
  std::string file;    // relative to the checkpoint directory
  std::string tensor;  // the first tensor concerned; empty when the file holds none
  int rank = -1;       // the rank that wrote the file; -1 when no single rank did
  std::string message;

  std::string ToString() const;  // one line: "model/shard-...: tensor T of rank 2: ..."
};

struct VerifyReport {
  int64_t step = 0;
  int64_t bytes = 0;       // by the manifest
  int64_t bytes_read = 0;  // what this check read
  int64_t tensors = 0;
  int64_t files = 0;
  int64_t created_ms = 0;  // milliseconds since 1970, UTC
  int64_t world = 0;       // ranks that wrote it
  Fence fence;             // who did
  std::vector<Problem> problems;

  bool ok() const { return problems.empty(); }
};

// Looks at all files of one checkpoint directory and reports every problem that it finds: manifest, coverage (boxes
// tile the global shapes exactly), presence and size of files, files that do not belong, hash files and, with
// kEverything, every hash of every byte, of the disk and not of what the system has in memory. Errors: kNotFound when
// the directory does not exist; kPermissionDenied; kUnavailable soon after `*stop` has become true.
Result<VerifyReport> Verify(const std::string& path, Check check = Check::kEverything,
                            FileSystem& fs = PosixFileSystem(), const std::atomic<bool>* stop = nullptr);

}  // namespace trainyard::checkpoint
