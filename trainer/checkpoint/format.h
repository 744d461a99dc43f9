// What `trainyard-checkpoint/1` is made of: names on disk, tensors as boxes of bytes, sizes of hash blocks. The format
// is described byte by byte in docs/checkpoint-format.md. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::checkpoint {

inline constexpr std::string_view kFormat = "trainyard-checkpoint/1";
inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTrainStateFile = "train_state.json";
inline constexpr std::string_view kModelGroup = "model";
inline constexpr std::string_view kOptimGroup = "optim";
inline constexpr std::string_view kStagingDirectory = ".staging";
// Data of a shard file begins at a multiple of this.
inline constexpr int64_t kDataAlignment = 4096;
inline constexpr int64_t kMinBlockBytes = 4096;
inline constexpr int64_t kMaxBlockBytes = 1 << 20;

// A box of a tensor in memory: `shape` elements from `offset` in the tensor of `global_shape`, contiguous in C order.
// Our shards are row ranges (dimension 0), but every function here takes boxes in any number of dimensions.
// A box without elements is legal: it is not written, and reading it does nothing.
struct TensorSlice {
  std::string name;   // Hugging Face name, or state.<name>.<PyTorch's name of it> such as exp_avg
  std::string dtype;  // as in safetensors: "F32", "BF16", "I64", ...
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
  void* data = nullptr;  // the writer only reads it
};

// What a checkpoint knows of one tensor.
struct TensorInfo {
  std::string name;
  std::string group;  // "model" or "optim"
  std::string dtype;
  std::vector<int64_t> global_shape;
};

// Who saves: `round` counts restarts of processes inside the pods of one attempt.
struct Fence {
  std::string job_uid;
  int64_t attempt = 0;
  int64_t round = 0;
};

// Bytes of one element; nothing for a dtype that safetensors does not know.
std::optional<int64_t> DtypeBytes(std::string_view dtype);
// Product of the dimensions; nothing when one is negative or the product leaves 63 bits.
std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape);
// Dimensions agree, the box lies inside the tensor, the dtype is known, the name is not empty. Error: kInvalidArgument.
Status CheckSlice(const TensorSlice& slice);

// "step-00000200"; steps of more than eight digits get as many as they need.
std::string StepDirectory(int64_t step);
// The inverse; nothing for any name that StepDirectory does not write.
std::optional<int64_t> ParseStepDirectory(std::string_view name);
// "model/shard-00001-model-00001-of-00001.safetensors" for rank 0: the name pattern of PyTorch's sharded safetensors.
std::string ShardPath(std::string_view group, int rank);
// The file of block hashes beside a shard file.
std::string HashPath(std::string_view shard_path);

// Hash block of a chunk of so many bytes: the power of two at or below bytes/256, within [4 KiB, 1 MiB], so that a
// reader of any part of the chunk reads less than 1 % more than it asked for.
int64_t BlockBytes(int64_t chunk_bytes);

// XXH3-64 as 16 hex digits.
std::string HexDigest(uint64_t hash);
uint64_t Digest(std::string_view bytes);

}  // namespace trainyard::checkpoint
