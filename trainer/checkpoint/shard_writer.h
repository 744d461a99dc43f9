// Writes one shard file and its file of block hashes. Thread-safety: free function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/manifest.h"

namespace trainyard::checkpoint {

// Writes `slices` (all with elements, of one group) to `directory`/ShardPath(group, rank) and syncs both files, but not
// the directory. Chunk::tensor of the result is the index into `slices`. Existing files of those names are replaced.
Result<ShardFile> WriteShardFile(const std::string& directory, std::string_view group, int rank,
                                 const std::vector<const TensorSlice*>& slices, FileSystem& fs);

}  // namespace trainyard::checkpoint
