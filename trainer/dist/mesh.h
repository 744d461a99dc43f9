// Mesh: the world as a grid of named dimensions, "replicate" x "shard". Ranks of one shard group are neighbours (they
// share a node or a clique by placement's rank order); replicas lie shard_size apart.
// Thread-safety: plain value after construction; the groups as Comm.
#pragma once

#include <memory>
#include <string_view>

#include "trainer/dist/comm.h"

namespace trainyard::dist {

class Mesh {
 public:
  // Collective over `world`, which must outlive the mesh. world.size() must be a multiple of shard_size; otherwise, and
  // when the groups cannot be formed, throws CommError.
  Mesh(Comm& world, int shard_size);

  Comm& world() { return world_; }
  // The ranks that hold one full set of shards; the world itself where shard_size is its size.
  Comm& shard() { return shard_ ? *shard_ : world_; }
  // The ranks that hold the same shard.
  Comm& replicate() { return replicate_ ? *replicate_ : world_; }
  // By name: "world", "shard", "replicate"; null for another name.
  Comm* Dimension(std::string_view name);

 private:
  Comm& world_;
  std::unique_ptr<Comm> shard_;      // null: the world
  std::unique_ptr<Comm> replicate_;  // null: the world
};

}  // namespace trainyard::dist
