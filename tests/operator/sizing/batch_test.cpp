#include "operator/sizing/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace trainyard::sizing {
namespace {

using ::testing::ElementsAre;

TEST(Batch, OursTakesTheGlobalBatchAtEveryNumberOfRanks) {
  for (int64_t ranks = 1; ranks <= 64; ++ranks) {
    for (int64_t micro : {1, 2, 4}) {
      const Batch b = BatchOf(64, micro, ranks, true);
      EXPECT_EQ(b.effective, 64);
      EXPECT_EQ(b.effective + b.padding, b.micro_batch * b.accumulation * b.ranks);
      EXPECT_GE(b.padding, 0);
      EXPECT_LE(b.Used(), 1);
    }
  }
  EXPECT_EQ(BatchOf(512, 1, 3, true).padding, 1);
  EXPECT_EQ(BatchOf(512, 1, 300, true).accumulation, 2);
  EXPECT_NEAR(BatchOf(512, 1, 300, true).Used(), 512.0 / 600, 1e-12);
}

TEST(Batch, AnotherProgramTakesAnExactProduct) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 5000; ++i) {
    const int64_t global = 1 + static_cast<int64_t>(random() % 5000);
    const int64_t micro = 1 + static_cast<int64_t>(random() % 16);
    const int64_t ranks = 1 + static_cast<int64_t>(random() % 128);
    const Batch b = BatchOf(global, micro, ranks, false);
    ASSERT_EQ(b.effective, b.micro_batch * b.accumulation * b.ranks);
    ASSERT_EQ(b.padding, 0);
    ASSERT_GE(b.accumulation, 1);
    // No other accumulation comes nearer.
    const int64_t unit = micro * ranks;
    ASSERT_LE(std::abs(b.effective - global), std::abs(b.effective + unit - global));
    if (b.effective > unit) {
      ASSERT_LE(std::abs(b.effective - global), std::abs(b.effective - unit - global));
    }
  }
}

TEST(Batch, TheNearestPossibleBatchesAreNamed) {
  EXPECT_THAT(NearestBatches(512, 1, 3), ElementsAre(510, 513));
  EXPECT_THAT(NearestBatches(512, 4, 8), ElementsAre(512));
  EXPECT_THAT(NearestBatches(8, 4, 8), ElementsAre(32));
  EXPECT_EQ(BatchOf(512, 1, 3, false).effective, 513);
  EXPECT_EQ(BatchOf(511, 2, 6, false).effective, 516) << "504 is 7 away, 516 is 5";
}

TEST(Batch, MicroBatchesThatAreWorthTrying) {
  EXPECT_THAT(MicroBatches(0, 512, 4096, 8, true), ElementsAre(1, 2, 4));
  EXPECT_THAT(MicroBatches(0, 512, 16384, 8, true), ElementsAre(1));
  EXPECT_THAT(MicroBatches(3, 512, 4096, 8, true), ElementsAre(3));
  EXPECT_THAT(MicroBatches(0, 512, 1024, 256, false), ElementsAre(1, 2));
  EXPECT_THAT(MicroBatches(0, 12, 1024, 3, false), ElementsAre(1, 2, 4));
  // 300 ranks of 512 sequences take 2 passes of one each; 2 sequences in one pass is the same work.
  EXPECT_THAT(MicroBatches(0, 512, 1024, 256, true), ElementsAre(1, 2));
}

}  // namespace
}  // namespace trainyard::sizing
