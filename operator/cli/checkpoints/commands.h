// What `trainyard checkpoints` does, one function a command: work on files alone, no cluster, no LibTorch. Each returns
// an exit code (exit_codes.h): kExitNotFound where the directory or the checkpoint does not exist, kExitJobFailed where
// bytes are damaged, kExitBadInput for what cannot be right. With `json` the answer is one JSON value on `out`; errors
// are one line on `err`. Thread-safety: call from one thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace trainyard::cli {

// One checkpoint: its own directory, or the checkpoint directory of a job, of which the newest valid one is meant, or
// the one of `step`.
struct CheckpointRef {
  std::string path;
  std::optional<int64_t> step;
};

// One row per checkpoint of `root`, newest first, or for the one that `root` is: STEP, SIZE, TIME, RANKS, STATE. Looks
// at manifests, sizes and hash files and reads no tensor data.
int RunCheckpointsList(const std::string& root, bool json, std::ostream& out, std::ostream& err);

// Reads every byte of one checkpoint, or of all checkpoints of a root, and says of each whether it is right; where not,
// one line per problem names file, tensor and rank. kExitJobFailed when one is not.
int RunCheckpointsVerify(const CheckpointRef& ref, bool json, std::ostream& out, std::ostream& err);

// Who wrote it and when, its tensors, its train state; with `boxes` which rank wrote which box to which bytes.
int RunCheckpointsShow(const CheckpointRef& ref, bool boxes, bool json, std::ostream& out, std::ostream& err);

// Which tensors differ, and by how much at most. kExitJobFailed when one does. `model_only`: leaves out the optimizer.
int RunCheckpointsDiff(const CheckpointRef& a, const CheckpointRef& b, bool model_only, bool json, std::ostream& out,
                       std::ostream& err);

struct PruneFlags {
  int64_t keep_last = 0;   // newest valid ones, at least 1
  int64_t keep_every = 0;  // and the first at or after each multiple of it; 0: none
  bool dry_run = false;    // only says what would go
};
// Removes the other checkpoints of a root; never the newest valid one, never one that somebody reads. Valid means that
// every byte of it was read and is right.
int RunCheckpointsPrune(const std::string& root, const PruneFlags& flags, bool json, std::ostream& out,
                        std::ostream& err);

struct ExportFlags {
  std::string to = "huggingface";  // or "dcp" or "peft"
  std::string directory;           // that is made, or is empty
  std::string dtype;           // of huggingface and peft: float32, bfloat16, float16; empty: as imported, or float32
  std::string max_shard_size;  // of huggingface; empty: as imported, or 5GB
};
// Writes a checkpoint as others read it (trainer/checkpoint/export.h).
int RunCheckpointsExport(const CheckpointRef& ref, const ExportFlags& flags, bool json, std::ostream& out,
                         std::ostream& err);

struct ImportFlags {
  std::string source;
  std::string config;  // empty: that of the source, or of the base
  std::string base;    // of an adapter
};
// Makes a checkpoint of step 0 from the weights or the adapter in `source` (trainer/checkpoint/import.h).
int RunCheckpointsImport(const ImportFlags& flags, const std::string& root, bool json, std::ostream& out,
                         std::ostream& err);

struct MergeFlags {
  std::string base;       // a Hugging Face directory
  std::string directory;  // that is made, or is empty
};
// Writes the base with the adapter added to its weights (trainer/checkpoint/merge.h). `adapter`: a checkpoint as the
// others take it, or a directory in PEFT's layout, which has no steps.
int RunCheckpointsMerge(const CheckpointRef& adapter, const MergeFlags& flags, bool json, std::ostream& out,
                        std::ostream& err);

}  // namespace trainyard::cli
