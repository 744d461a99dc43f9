#include "trainer/checkpoint/box.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::checkpoint {
namespace {

TEST(Box, RowsThatTileAreFineInAnyOrder) {
  EXPECT_EQ(TilingProblem({10, 4}, {{{7, 0}, {3, 4}}, {{0, 0}, {7, 4}}}), "");
  EXPECT_EQ(TilingProblem({5}, {{{0}, {5}}}), "");
  EXPECT_EQ(TilingProblem({0, 4}, {}), "");
  EXPECT_EQ(TilingProblem({}, {{{}, {}}}), "");
}

TEST(Box, GapsAndOverlapsAreNamedByRow) {
  EXPECT_EQ(TilingProblem({10, 4}, {{{0, 0}, {3, 4}}, {{5, 0}, {5, 4}}}), "rows [3, 5) are in no file");
  EXPECT_EQ(TilingProblem({10, 4}, {{{0, 0}, {7, 4}}}), "rows [7, 10) are in no file");
  EXPECT_EQ(TilingProblem({10, 4}, {}), "rows [0, 10) are in no file");
  EXPECT_EQ(TilingProblem({10, 4}, {{{0, 0}, {6, 4}}, {{4, 0}, {6, 4}}}), "rows [4, 6) are there twice");
}

TEST(Box, TilingOfBoxesInEveryDimension) {
  const std::vector<Box> quarters = {{{0, 0}, {2, 3}}, {{0, 3}, {2, 1}}, {{2, 0}, {2, 1}}, {{2, 1}, {2, 3}}};
  EXPECT_EQ(TilingProblem({4, 4}, quarters), "");
  std::vector<Box> hole(quarters.begin(), quarters.end() - 1);
  EXPECT_EQ(TilingProblem({4, 4}, hole), "only 10 of 16 elements are in a file");
  std::vector<Box> twice = quarters;
  twice[3] = {{1, 1}, {3, 3}};
  EXPECT_THAT(TilingProblem({4, 4}, twice), testing::HasSubstr("is there twice"));
  // As many elements as the tensor has, but one twice and one never.
  EXPECT_THAT(TilingProblem({2, 2}, {{{0, 0}, {2, 1}}, {{0, 0}, {1, 1}}, {{1, 1}, {1, 1}}}),
              testing::HasSubstr("is there twice"));
  EXPECT_EQ(TilingProblem({}, {}), "only 0 of 1 elements are in a file");
}

TEST(Box, RunsVisitEachSharedElementOnce) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const size_t dims = random() % 4;
    Box a, b;
    for (size_t d = 0; d < dims; ++d) {
      for (Box* box : {&a, &b}) {
        box->offset.push_back(random() % 2 ? 0 : static_cast<int64_t>(random() % 3));
        box->shape.push_back(random() % 2 ? 4 : 1 + static_cast<int64_t>(random() % 5));
      }
    }
    const std::optional<Box> inner = Intersect(a, b);
    if (!inner) continue;
    const SharedRuns runs(a, b, *inner);
    ASSERT_EQ(runs.count() * runs.length(), inner->elements());
    const auto global = [](const Box& box, int64_t index) {
      std::vector<int64_t> at(box.shape.size());
      for (size_t d = box.shape.size(); d-- > 0;) {
        at[d] = box.offset[d] + index % box.shape[d];
        index /= box.shape[d];
      }
      return at;
    };
    int64_t previous = -1;
    for (int64_t i = 0; i < runs.count(); ++i) {
      const SharedRuns::Start start = runs.At(i);
      ASSERT_GT(start.a, previous) << "runs go forward in the first box";
      previous = start.a + runs.length() - 1;
      for (int64_t k = 0; k < runs.length(); ++k) {
        ASSERT_EQ(global(a, start.a + k), global(b, start.b + k)) << "run " << i << " element " << k;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::checkpoint
