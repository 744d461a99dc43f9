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
  std::string dtype;        // "F32", "BF16" or "F16", rounded to nearest, ties to even; empty: as carried along, or F32
  int64_t shard_bytes = 0;  // most tensor bytes in one file, one tensor is never split; 0: as carried along, or 5 GB
  std::string carried_root;  // directory of checkpoints whose source files go along (source_files.h); empty: none do
};
// Writes what transformers' from_pretrained reads as the model's architecture: config.json and model.safetensors, or
// model-00001-of-0000N.safetensors with model.safetensors.index.json; and what the checkpoints carry of the model they
// came from. A model that nothing was trained of comes out as it came in, byte for byte, where it was F32, BF16 or F16
// and had nothing but parameters. The optimizer is left out, a tied head is there once unless it came twice. Of a model
// that was not imported there is no tokenizer and no generation_config.json: a checkpoint knows neither.
// `directory` is made, or is empty. config.json comes last: a directory that has it is whole. Errors:
// kFailedPrecondition for a model that transformers has no name for, or files carried along of another model;
// kInvalidArgument for a number that is too large for its dtype; kAlreadyExists when `directory` is not empty;
// kDataLoss; of the file system. After an error what was written is removed.
Result<ExportInfo> ExportHuggingFace(Reader& reader, const std::string& directory, const HuggingFaceOptions& options,
                                     FileSystem& fs = PosixFileSystem());

// Writes what PEFT's from_pretrained reads: adapter_config.json, which comes last, and adapter_model.safetensors in
// `dtype` ("F32", "BF16" or "F16"; empty: F32). Errors: kFailedPrecondition for a checkpoint of a whole model; else as
// above.
Result<ExportInfo> ExportPeft(Reader& reader, const std::string& directory, const std::string& dtype = "",
                              FileSystem& fs = PosixFileSystem());

// Writes the checkpoint `path` as one directory for torch.distributed.checkpoint's HuggingFaceStorageReader: the shards
// as they are, model and optimizer side by side (shard-R-model-1-of-2 and -2-of-2), and train_state.json. Names and
// formats stay. Errors: as above.
Result<ExportInfo> ExportDcp(const std::string& path, const std::string& directory, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint
