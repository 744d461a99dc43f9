// The hashes of one shard file: one for its header, one for each block of each chunk. On disk a little-endian binary
// file beside the shard; its own digest stands in the manifest, so that trust runs manifest -> hash file -> every byte.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::checkpoint {

struct ChunkHashes {
  int64_t bytes = 0;
  int64_t block_bytes = 0;
  std::vector<uint64_t> blocks;  // XXH3-64 of bytes [k*block_bytes, min((k+1)*block_bytes, bytes)) of the chunk

  bool operator==(const ChunkHashes&) const = default;
};

struct BlockHashes {
  uint64_t header = 0;              // XXH3-64 of everything before the data
  std::vector<ChunkHashes> chunks;  // in file order

  bool operator==(const BlockHashes&) const = default;
};

// Blocks in a chunk.
int64_t BlockCount(int64_t chunk_bytes, int64_t block_bytes);

std::string EncodeHashes(const BlockHashes& hashes);
// Error: kDataLoss for anything that EncodeHashes does not write.
Result<BlockHashes> DecodeHashes(std::string_view text);

}  // namespace trainyard::checkpoint
