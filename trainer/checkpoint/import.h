// Weights and adapters of others as a checkpoint of ours. Thread-safety: free function.
#pragma once

#include <cstdint>
#include <string>

#include "operator/base/clock.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {

struct ImportOptions {
  // A directory with adapter_config.json, in PEFT's layout; with model.safetensors, with model.safetensors.index.json
  // and what it names, or with any *.safetensors files, those that torch.distributed.checkpoint writes
  // (save_distributed) among them.
  std::string source;
  std::string config;              // a config.json; empty: that of the source, or of the base
  std::string base;                // of an adapter: the Hugging Face directory that it belongs to
  std::string root;                // the checkpoint directory that is made; absent or empty before
  int64_t memory_bytes = 1 << 30;  // tensors in memory at a time; at least the largest one
  TimePoint time{};
};

struct ImportInfo {
  std::string path;  // root/step-00000000
  ModelDescription model;
  int64_t tensors = 0;
  int64_t bytes = 0;    // of the checkpoint
  int64_t ignored = 0;  // tensors of the source that are no parameters of the model: buffers, a tied head, an optimizer
};

// Makes a checkpoint of step 0 with the weights alone, in F32: no optimizer state, no place in the data. A job starts
// from it with checkpoint.resumeFrom and weightsOnly; its train state says "weightsOnly". Names are taken as they are,
// or with one prefix before all of them that goes; GPT-2's of before "transformer." are known. What the source has
// besides weights is carried along (source_files.h). Of an adapter, the checkpoint has that alone and says the hash of
// the base, which is read for it, or, with a config and no base, that nobody knows it. Errors: kInvalidArgument for a
// config.json that our trainer does not compute alike, an index that leads out of the directory, a tensor that is
// missing, of another shape, or covered twice; kNotFound; kDataLoss for a file that is not whole; kAlreadyExists when
// `root` is not empty; of the file system.
Result<ImportInfo> ImportWeights(const ImportOptions& options, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
