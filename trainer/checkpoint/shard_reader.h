// Reads whole hash blocks of one shard file and checks them. Thread-safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/checkpoint/block_hashes.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/manifest.h"

namespace trainyard::checkpoint {

// Blocks [first, first + count) of one chunk.
struct BlockRange {
  int64_t chunk = 0;  // index into ShardFile::chunks
  int64_t first = 0;
  int64_t count = 0;
};

class ShardReader {
 public:
  // Opens the file and its hash file and checks the latter against the manifest. `bytes_read` is counted up.
  // Error: kDataLoss with the reason, without the file's name, when something is missing or wrong.
  static Result<ShardReader> Open(const std::string& directory, const ShardFile& file, FileSystem& fs,
                                  int64_t& bytes_read);

  // Blocks of a chunk that hold bytes [begin, end) of it; end > begin.
  BlockRange Covering(int64_t chunk, int64_t begin, int64_t end) const;
  // All blocks of a chunk.
  BlockRange All(int64_t chunk) const;

  // Called with the chunk, the first byte in it, and the bytes if they are right; otherwise `check` says why not. An
  // error that it returns ends the reading.
  using Visit = std::function<Status(int64_t chunk, int64_t begin, std::string_view bytes, const Status& check)>;
  // Reads the ranges, in file order and without overlap, in few large reads, and visits each piece once.
  Status Read(const std::vector<BlockRange>& ranges, const Visit& visit);
  // The next reads are of the disk.
  void DropCache() { fs_->DropCache(open_.fd()); }
  // That the header is what was written.
  Status CheckHeader();

 private:
  ShardReader(const ShardFile& file, OpenFile open, BlockHashes hashes, FileSystem& fs, int64_t& bytes_read)
      : file_(&file), open_(std::move(open)), hashes_(std::move(hashes)), fs_(&fs), bytes_read_(&bytes_read) {}

  // Bytes of a range, in its chunk.
  int64_t Begin(const BlockRange& range) const;
  int64_t End(const BlockRange& range) const;
  Status VisitGroup(const BlockRange* ranges, size_t count, const Visit& visit);
  Status CheckBlocks(const BlockRange& range, std::string_view bytes) const;

  const ShardFile* file_;
  OpenFile open_;
  BlockHashes hashes_;
  FileSystem* fs_;
  int64_t* bytes_read_;
  std::string buffer_;
};

}  // namespace trainyard::checkpoint
