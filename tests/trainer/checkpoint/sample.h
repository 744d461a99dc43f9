// A small model and its optimizer state for the checkpoint tests: every element is a function of tensor, index and
// step, so that anyone can say what a box must hold. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard::checkpoint {

struct SampleTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Tensors of a rank: rows [r*ceil(R/W), min(R, (r+1)*ceil(R/W))) of each, with the memory behind them.
class SampleShards {
 public:
  // Filled with the values of `step`; with a negative one left at -1.
  SampleShards(const std::vector<SampleTensor>& tensors, int rank, int world, int64_t step);

  std::vector<TensorSlice> model, optim;

  std::vector<TensorSlice> all() const;
  int64_t bytes() const;
  // Elements that are not those of `step`.
  int64_t Wrong(int64_t step) const;

 private:
  std::vector<std::vector<float>> memory_;
};

// Value of element `index` (C order) at `step` of the tensor whose name has this StableHash: whole numbers below 2^23,
// exact in fp32.
float SampleValue(uint64_t name_hash, int64_t index, int64_t step);
// Calls `visit(index in the global tensor, position in the box)` for every element of a box.
template <typename Visit>
void ForEachElement(const TensorSlice& slice, const Visit& visit) {
  int64_t count = 1;
  for (int64_t n : slice.shape) count *= n;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, index = 0, stride = 1;
    for (size_t d = slice.shape.size(); d-- > 0;) {
      index += (slice.offset[d] + rest % slice.shape[d]) * stride;
      stride *= slice.global_shape[d];
      rest /= slice.shape[d];
    }
    visit(index, i);
  }
}

const std::vector<SampleTensor>& SmallModel();

SaveRequest SampleRequest(const std::string& root, int64_t step, const Fence& fence, int rank, int world);
// All ranks' WriteShards and the commit, without TakeOver.
Result<CommitInfo> SaveSample(const std::string& root, int64_t step, const Fence& fence, int world,
                              const std::vector<SampleTensor>& tensors = SmallModel(),
                              FileSystem& fs = PosixFileSystem());
// Loads at `world` and compares with the values of `step`. Empty when all is right. Counts bytes read when asked.
std::string LoadSample(const std::string& path, int64_t step, int world,
                       const std::vector<SampleTensor>& tensors = SmallModel(), int64_t* bytes_read = nullptr);

// A fresh directory, removed at the end. On a disk, or, for tests of very many small calls, in memory where there is a
// file system in memory.
enum class Storage { kDisk, kMemory };
class TempDirectory {
 public:
  explicit TempDirectory(Storage storage = Storage::kDisk);
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trainyard::checkpoint
