// Writes a small checkpoint of three ranks into a directory and says on standard output what it must hold: for the test
// that reads it with Python.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"

int main(int argc, char** argv) {
  using namespace trainyard::checkpoint;  // NOLINT: a program of one page
  if (argc != 2) {
    std::fprintf(stderr, "usage: checkpoint_sample DIRECTORY\n");
    return 2;
  }
  const int64_t step = 5;
  const int world = 3;
  const Fence fence{"sample", 1, 0};
  if (trainyard::Result<TakeOverInfo> taken = TakeOver(argv[1], fence); !taken) {
    std::fprintf(stderr, "%s\n", taken.error().message.c_str());
    return 1;
  }
  if (trainyard::Result<CommitInfo> info = SaveSample(argv[1], step, fence, world); !info) {
    std::fprintf(stderr, "%s\n", info.error().message.c_str());
    return 1;
  }
  nlohmann::json out = nlohmann::json::array();
  for (const TensorSlice& slice : SampleShards(SmallModel(), 0, world, step).all()) {
    out.push_back({{"name", slice.name},
                   {"shape", slice.global_shape},
                   {"base", (trainyard::StableHash(slice.name) + static_cast<uint64_t>(step)) % 8388593u}});
  }
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
