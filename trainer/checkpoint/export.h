// Our checkpoints in the layouts of others. Memory: a few pieces of 32 MiB, whatever the size of the model, besides the
// manifest. Every byte that is read is checked against its hash. Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

struct ExportInfo {
  int64_t tensors = 0;
  int64_t bytes = 0;               // written
  std::vector<std::string> files;  // relative to the directory
};

struct HuggingFaceOptions {
  std::string dtype = "F32";            // or "BF16": rounded to nearest, ties to even
  int64_t shard_bytes = 5'000'000'000;  // most tensor bytes in one file; one tensor is never split
};
// Writes what transformers' from_pretrained reads as LlamaForCausalLM or GPT2LMHeadModel: config.json and
// model.safetensors, or model-00001-of-0000N.safetensors with model.safetensors.index.json. The optimizer is left out,
// a tied head is there once. There is no tokenizer and no generation_config.json: a checkpoint knows neither.
// `directory` is made, or is empty. config.json comes last: a directory that has it is whole. Errors:
// kFailedPrecondition for a model that transformers has no name for; kAlreadyExists when `directory` is not empty;
// kDataLoss; of the file system. After an error what was written is removed.
Result<ExportInfo> ExportHuggingFace(Reader& reader, const std::string& directory, const HuggingFaceOptions& options,
                                     FileSystem& fs = PosixFileSystem());

// Writes the checkpoint `path` as one directory for torch.distributed.checkpoint's HuggingFaceStorageReader: the shards
// as they are, model and optimizer side by side (shard-R-model-1-of-2 and -2-of-2), and train_state.json. Names and
// formats stay. Errors: as above.
Result<ExportInfo> ExportDcp(const std::string& path, const std::string& directory, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
