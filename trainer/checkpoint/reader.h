// Finding and reading checkpoints: any boxes, at any world size, each byte hashed by the rank that reads it.
// Thread-safety: free functions from any thread; a Reader belongs to one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {

// How thoroughly a checkpoint is looked at.
enum class Check {
  kStructure,   // manifest, coverage, sizes of all files, hash files: no tensor data is read
  kEverything,  // and every hash of every byte
};

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;       // by the manifest; 0 when it cannot be read
  int64_t created_ms = 0;  // milliseconds since 1970, UTC; 0 when unknown
  int64_t world = 0;       // ranks that wrote it
  std::string job_uid;     // who wrote it
  int64_t attempt = 0;
  int64_t manifest_bytes = 0, manifest_ms = 0;  // size of its manifest, and when that was written
  bool valid = false;
  std::string problem;               // when not valid: names file, tensor and rank
  std::vector<std::string> skipped;  // NewestValid: one line per newer checkpoint that is bad
};

// Every step directory of `root`, newest first; other entries are ignored, and a step directory that is a symbolic link
// or a file is listed as bad. Of `known`, an earlier answer of the same check, a valid one is taken as it was if its
// manifest is the same by size and time; but the three newest ones, which a resume needs, are looked at anew.
// Errors: kNotFound when `root` does not exist; of the file system.
Result<std::vector<CheckpointInfo>> List(const std::string& root, Check check = Check::kStructure,
                                         FileSystem& fs = PosixFileSystem(),
                                         const std::vector<CheckpointInfo>& known = {});

// The newest valid checkpoint with a step below `below`; bad ones on the way are named in `skipped`.
// A flipped bit in tensor data is found by Reader::Read (kDataLoss): then ask again with `below` = that step.
// Errors: kNotFound when there is none at all (or no `root`): a fresh start. kDataLoss when there are only bad ones.
Result<CheckpointInfo> NewestValid(const std::string& root, int64_t below = std::numeric_limits<int64_t>::max(),
                                   Check check = Check::kStructure, FileSystem& fs = PosixFileSystem());

class Reader {
 public:
  // Reads manifest and train state of one checkpoint directory and checks that the boxes tile every tensor.
  // Errors: kNotFound when the directory is missing; kDataLoss when it is not a whole checkpoint.
  static Result<Reader> Open(const std::string& path, FileSystem& fs = PosixFileSystem());
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  int64_t step() const;
  int world() const;  // ranks that wrote it
  const std::string& job_uid() const;
  int64_t attempt() const;
  const nlohmann::json& train_state() const;
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* Find(const std::string& name) const;  // nullptr when absent

  // Fills `data` of every box, reading only the files and hash blocks that the boxes meet.
  // Errors: kInvalidArgument for a malformed box; kFailedPrecondition when a tensor is absent or has another shape or
  // dtype; kDataLoss, naming file, tensor and rank, when bytes are missing or wrong. On error the contents of the
  // destinations are unspecified.
  Status Read(const std::vector<TensorSlice>& wanted);

  // Bytes read from files so far: manifest, train state, hash files and tensor data.
  int64_t bytes_read() const;

 private:
  struct Impl;
  explicit Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::checkpoint
