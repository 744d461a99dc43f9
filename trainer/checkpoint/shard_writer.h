// Writes one shard file and its file of block hashes. Thread-safety: free function.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/manifest.h"

namespace trainyard::checkpoint {

// A shard whose two files are written and not yet synced: the disk works on them while the next shard is being written.
struct WrittenShard {
  ShardFile file;  // Chunk::tensor is the index into the slices that were given
  OpenFile data;
  OpenFile hashes;

  // Syncs and closes both files; their directory is left to the caller.
  Status Finish(FileSystem& fs);
};

// Writes `slices` (all with elements, of one group) to `directory`/ShardPath(group, rank). Existing files of those
// names are replaced. `fetch`: as in SaveRequest.
Result<WrittenShard> WriteShardFile(const std::string& directory, std::string_view group, int rank,
                                    const std::vector<const TensorSlice*>& slices,
                                    const std::function<Result<const void*>(const TensorSlice&)>& fetch,
                                    FileSystem& fs);

}  // namespace trainyard::checkpoint
