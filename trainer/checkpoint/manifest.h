// manifest.json: what a checkpoint consists of. It is written last, and it alone says which shapes, boxes, sizes and
// digests are right: nothing about a tensor is ever inferred from the files that happen to be there.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/checkpoint/box.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {

// A box of one tensor in one file.
struct Chunk {
  int64_t tensor = 0;  // index into Manifest::tensors
  Box box;
  int64_t begin = 0;  // byte range in the file
  int64_t end = 0;
};

struct ShardFile {
  std::string path;  // relative to the checkpoint directory
  int rank = 0;
  int64_t bytes = 0;
  int64_t data_begin = 0;     // the header and its length take the bytes before
  int64_t hash_bytes = 0;     // size of the hash file
  uint64_t digest = 0;        // XXH3-64 of the hash file, and so of the whole shard
  std::vector<Chunk> chunks;  // in file order, without holes
};

struct Manifest {
  int64_t step = 0;
  int world = 1;
  Fence fence;
  int64_t created_ms = 0;
  int64_t train_state_bytes = 0;
  uint64_t train_state_digest = 0;
  std::vector<TensorInfo> tensors;
  std::vector<ShardFile> files;

  // Bytes of all files but the manifest itself.
  int64_t bytes() const;
};

// What one rank contributes: its tensors and files, with step, world and fence set.
struct RankPart {
  int rank = 0;
  Manifest contents;
};
std::string EncodePart(const RankPart& part);
// Error: kInvalidArgument.
Result<RankPart> DecodePart(const std::string& text);

// The text of manifest.json. It carries a digest of itself.
std::string EncodeManifest(const Manifest& manifest);
// Errors: kDataLoss when the text is not whole or breaks a rule of the format, tiling excepted.
Result<Manifest> DecodeManifest(const std::string& text);

// Joins the parts of all ranks. Errors: kInvalidArgument when a rank is missing or there twice, when parts disagree
// about step, fence, shape or dtype, or when the boxes of a tensor do not tile it.
Result<Manifest> MergeParts(const std::vector<RankPart>& parts);

// A tensor that is not tiled exactly by its chunks, and why.
struct Untiled {
  std::string tensor;
  std::string reason;
};
std::vector<Untiled> FindUntiled(const Manifest& manifest);

}  // namespace trainyard::checkpoint
