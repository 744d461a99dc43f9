#include "trainer/checkpoint/block_hashes.h"

#include <bit>
#include <cstring>
#include <limits>

namespace trainyard::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers on disk are little-endian");

constexpr std::string_view kMagic = "TYHASH01";

void Put(std::string& out, uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, 8);
  out.append(bytes, 8);
}

// Takes the next number off the front; false at the end.
bool Take(std::string_view& text, uint64_t& value) {
  if (text.size() < 8) return false;
  std::memcpy(&value, text.data(), 8);
  text.remove_prefix(8);
  return true;
}

}  // namespace

// The sum of the two may be beyond 63 bits in a damaged file.
int64_t BlockCount(int64_t chunk_bytes, int64_t block_bytes) {
  return chunk_bytes / block_bytes + (chunk_bytes % block_bytes == 0 ? 0 : 1);
}

std::string EncodeHashes(const BlockHashes& hashes) {
  std::string out(kMagic);
  Put(out, hashes.header);
  Put(out, hashes.chunks.size());
  for (const ChunkHashes& chunk : hashes.chunks) {
    Put(out, static_cast<uint64_t>(chunk.bytes));
    Put(out, static_cast<uint64_t>(chunk.block_bytes));
  }
  for (const ChunkHashes& chunk : hashes.chunks) {
    for (uint64_t hash : chunk.blocks) Put(out, hash);
  }
  return out;
}

Result<BlockHashes> DecodeHashes(std::string_view text) {
  const auto bad = [] { return Fail(ErrorCode::kDataLoss, "not a file of block hashes"); };
  if (text.substr(0, kMagic.size()) != kMagic) return bad();
  text.remove_prefix(kMagic.size());
  BlockHashes out;
  uint64_t count = 0;
  if (!Take(text, out.header) || !Take(text, count) || count > text.size() / 16) return bad();
  out.chunks.resize(count);
  for (ChunkHashes& chunk : out.chunks) {
    uint64_t bytes = 0, block = 0;
    if (!Take(text, bytes) || !Take(text, block) || block == 0 || bytes > (uint64_t{1} << 62) ||
        block > bytes + (1 << 20)) {
      return bad();
    }
    chunk.bytes = static_cast<int64_t>(bytes);
    chunk.block_bytes = static_cast<int64_t>(block);
  }
  for (ChunkHashes& chunk : out.chunks) {
    const uint64_t blocks = static_cast<uint64_t>(BlockCount(chunk.bytes, chunk.block_bytes));
    if (blocks > text.size() / 8) return bad();
    chunk.blocks.resize(blocks);
    for (uint64_t& hash : chunk.blocks) Take(text, hash);
  }
  if (!text.empty()) return bad();
  return out;
}

}  // namespace trainyard::checkpoint
