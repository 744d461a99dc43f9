// Any bytes as the hash file of a shard.
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/block_hashes.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hashes = trainyard::checkpoint::DecodeHashes(text);
  if (!hashes) {
    RequireOneLine(hashes.error().message);
    return 0;
  }
  for (const auto& chunk : hashes->chunks) {
    Require(chunk.block_bytes > 0 && chunk.bytes >= 0, "sizes are sizes");
    Require(
        static_cast<int64_t>(chunk.blocks.size()) == trainyard::checkpoint::BlockCount(chunk.bytes, chunk.block_bytes),
        "each block has a hash");
  }
  Require(trainyard::checkpoint::EncodeHashes(*hashes) == text, "nothing is read that is not there");
  return 0;
}
