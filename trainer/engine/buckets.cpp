#include "trainer/engine/buckets.h"

#include <algorithm>

namespace trainyard::engine {

std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& sizes, int64_t max) {
  max = std::max<int64_t>(max, 1);
  std::vector<Bucket> buckets;
  bool open = false;  // the last bucket may take more
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (open && buckets.back().hi + sizes[i] <= max) {
      buckets.back().hi += sizes[i];
      buckets.back().end = i + 1;
      continue;
    }
    const int64_t parts = std::max<int64_t>((sizes[i] + max - 1) / max, 1);
    for (int64_t part = 0, lo = 0; part < parts; ++part) {
      const int64_t hi = lo + (sizes[i] - lo) / (parts - part);
      buckets.push_back({i, i + 1, lo, hi});
      lo = hi;
    }
    open = parts == 1;
  }
  return buckets;
}

}  // namespace trainyard::engine
