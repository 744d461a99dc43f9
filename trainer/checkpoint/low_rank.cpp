// AddLowRank of merge.h. Built for vectors in every configuration.
#include <algorithm>

#include "trainer/checkpoint/merge.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kTile = 1024;  // columns: what is summed stays in the first cache, and so do some rows of `right`

}  // namespace

void AddLowRank(const float* left, const float* right, int64_t rows, int64_t rank, int64_t columns, float scale,
                float* out) {
  float sum[kTile];
  for (int64_t begin = 0; begin < columns; begin += kTile) {
    const int64_t n = std::min(kTile, columns - begin);
    for (int64_t i = 0; i < rows; ++i) {
      std::fill(sum, sum + n, 0.0F);
      for (int64_t k = 0; k < rank; ++k) {
        const float factor = left[i * rank + k];
        const float* row = right + k * columns + begin;
        for (int64_t j = 0; j < n; ++j) sum[j] += factor * row[j];
      }
      float* to = out + i * columns + begin;
      for (int64_t j = 0; j < n; ++j) to[j] += scale * sum[j];
    }
  }
}

}  // namespace trainyard::checkpoint
