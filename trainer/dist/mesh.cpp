#include "trainer/dist/mesh.h"

#include <string>

#include "trainer/dist/in_process_comm.h"

namespace trainyard::dist {

Mesh::Mesh(Comm& world, int shard_size) : world_(world) {
  if (shard_size < 1 || world.size() % shard_size != 0) {
    throw CommError(CommError::Kind::kUsage, "mesh: shard size " + std::to_string(shard_size) +
                                                 " does not divide a world of " + std::to_string(world.size()));
  }
  // A dimension that spans the world is the world: no second set of connections.
  if (shard_size == world.size()) {
    replicate_ = MakeSelfComm();
  } else if (shard_size == 1) {
    shard_ = MakeSelfComm();
  } else {
    shard_ = world.Split(world.rank() / shard_size, world.rank(), {.label = "mesh shard"});
    replicate_ = world.Split(world.rank() % shard_size, world.rank(), {.label = "mesh replicate"});
  }
}

Comm* Mesh::Dimension(std::string_view name) {
  if (name == "world") {
    return &world_;
  }
  if (name == "shard") {
    return &shard();
  }
  if (name == "replicate") {
    return &replicate();
  }
  return nullptr;
}

}  // namespace trainyard::dist
