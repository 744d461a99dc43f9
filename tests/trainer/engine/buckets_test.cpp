#include "trainer/engine/buckets.h"

#include <gtest/gtest.h>

#include <random>

namespace trainyard::engine {
namespace {

TEST(Buckets, SmallParametersShareOneAndLargeOnesAreCutIntoEqualParts) {
  EXPECT_EQ(PlanBuckets({3, 4, 3, 5}, 10), (std::vector<Bucket>{{0, 3, 0, 10}, {3, 4, 0, 5}}));
  EXPECT_EQ(PlanBuckets({2, 22, 1, 1}, 10),
            (std::vector<Bucket>{{0, 1, 0, 2}, {1, 2, 0, 7}, {1, 2, 7, 14}, {1, 2, 14, 22}, {2, 4, 0, 2}}));
  EXPECT_EQ(PlanBuckets({0, 5, 0}, 10), (std::vector<Bucket>{{0, 3, 0, 5}}));
  EXPECT_TRUE(PlanBuckets({}, 10).empty());
}

// Whatever the sizes: every element of every parameter is in one bucket, and none is larger than it may be.
TEST(Buckets, CoverEverythingOnce) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> sizes(random() % 8);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 30);
    const int64_t max = 1 + static_cast<int64_t>(random() % 20);
    size_t next = 0;   // parameter
    int64_t done = 0;  // elements of the memory that begins there
    for (const Bucket& bucket : PlanBuckets(sizes, max)) {
      EXPECT_EQ(bucket.first, next);
      EXPECT_EQ(bucket.lo, done);
      EXPECT_LE(bucket.hi - bucket.lo, max);
      int64_t memory = 0;
      for (size_t i = bucket.first; i < bucket.end; ++i) memory += sizes[i];
      done = bucket.hi;
      if (done == memory) next = bucket.end, done = 0;
    }
    EXPECT_EQ(next, sizes.size());
    EXPECT_EQ(done, 0);
  }
}

}  // namespace
}  // namespace trainyard::engine
