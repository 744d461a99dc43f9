// The interval between saves: the published formula at points worked out by hand, its bounds, and that it is the
// minimum of what it minimises.
#include "trainer/contract/cadence.h"

#include <gtest/gtest.h>

#include <limits>

namespace trainyard::contract {
namespace {

TEST(SaveInterval, IsTheRootOfTwiceCostTimesMeanTimeBetweenFailures) {
  EXPECT_DOUBLE_EQ(SaveInterval(2, 10'000, 0.5, 0.1), 200);
  EXPECT_DOUBLE_EQ(SaveInterval(0.5, 3600, 0.5, 0.1), 60);
  // A save of 5 minutes and a failure a day: 2 hours.
  EXPECT_DOUBLE_EQ(SaveInterval(300, 86'400, 300, 1), 7200);
}

TEST(SaveInterval, IsNeverShorterThanASaveOrAStep) {
  EXPECT_DOUBLE_EQ(SaveInterval(0.02, 100, 30, 1), 30) << "the root is 2 s";
  EXPECT_DOUBLE_EQ(SaveInterval(0.02, 100, 0.5, 12), 12);
  EXPECT_DOUBLE_EQ(SaveInterval(0, 1e6, 4, 3), 4) << "a save that costs nothing";
}

TEST(SaveInterval, IsNeverLongerThanTheMeanTimeBetweenFailures) {
  EXPECT_DOUBLE_EQ(SaveInterval(50, 100, 1, 1), 100) << "both formulas meet at half of it";
  EXPECT_DOUBLE_EQ(SaveInterval(1000, 100, 1, 1), 100);
}

TEST(SaveInterval, IsFiniteWhateverWasMeasured) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double cost : {nan, inf, -1.0, 0.0, 1.0}) {
    for (double mtbf : {nan, inf, -1.0, 0.0, 1.0}) {
      for (double save : {nan, inf, -1.0, 0.0, 1.0}) {
        const double interval = SaveInterval(cost, mtbf, save, 0.25);
        EXPECT_TRUE(std::isfinite(interval) && interval >= 0.25) << cost << " " << mtbf << " " << save;
      }
    }
  }
}

TEST(SaveInterval, LosesTheLeastTime) {
  for (double cost : {0.1, 3.0, 40.0}) {
    for (double mtbf : {1e4, 1e5, 1e6}) {
      const double best = SaveInterval(cost, mtbf, 0, 0);
      for (double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0}) {
        EXPECT_LT(LostShare(best, cost, mtbf, 60), LostShare(factor * best, cost, mtbf, 60))
            << "cost " << cost << " s, mean time between failures " << mtbf << " s, factor " << factor;
      }
    }
  }
}

TEST(LostShare, AddsSavesLostWorkAndRestarts) {
  // A second per 100 s, half of 100 s and 10 s of restart per 6000 s.
  EXPECT_DOUBLE_EQ(LostShare(100, 1, 6000, 10), 0.01 + 0.01);
}

}  // namespace
}  // namespace trainyard::contract
