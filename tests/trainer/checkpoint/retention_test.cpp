#include "trainer/checkpoint/retention.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const Fence kFence{"uid", 4, 0};

class Retention : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TakeOver(root_, kFence));
    for (int64_t step : {100, 200, 300, 400}) ASSERT_TRUE(SaveSample(root_, step, kFence, 1));
  }
  std::vector<int64_t> Steps() {
    std::vector<int64_t> steps;
    const Result<std::vector<CheckpointInfo>> list = List(root_);
    for (auto it = list->rbegin(); it != list->rend(); ++it) steps.push_back(it->step);
    return steps;
  }
  void Break(int64_t step) { fs::remove(root_ + "/" + StepDirectory(step) + "/" + ShardPath("model", 0)); }

  TempDirectory temp_;
  const std::string root_ = temp_.path();
};

TEST_F(Retention, KeepsTheNewest) {
  EXPECT_THAT(*Prune(root_, 2), ElementsAre(100, 200));
  EXPECT_THAT(Steps(), ElementsAre(300, 400));
  EXPECT_THAT(*Prune(root_, 2), IsEmpty());
  EXPECT_EQ(LoadSample(root_ + "/step-00000300", 300, 2), "");
}

TEST_F(Retention, NeverRemovesTheNewestValidOne) {
  Break(400);
  Break(300);
  EXPECT_THAT(*Prune(root_, 1), ElementsAre(100));
  EXPECT_EQ(NewestValid(root_)->step, 200);
  Break(200);
  EXPECT_THAT(*Prune(root_, 1), IsEmpty()) << "without a valid one nothing goes";
}

TEST_F(Retention, BadOnesDoNotCountAndGoWhenTheyAreOld) {
  Break(200);
  EXPECT_THAT(*Prune(root_, 2), ElementsAre(100, 200));
}

TEST_F(Retention, OneInUseStays) {
  EXPECT_THAT(*Prune(root_, 1, {200}), ElementsAre(100, 300));
  EXPECT_THAT(Steps(), ElementsAre(200, 400));
}

TEST_F(Retention, FewerThanAskedForStay) {
  EXPECT_THAT(*Prune(root_, 9), IsEmpty());
  EXPECT_FALSE(Prune(root_, 0));
  EXPECT_EQ(Prune(root_ + "/nowhere", 1).error().code, ErrorCode::kNotFound);
}

TEST_F(Retention, LinksAreNotFollowed) {
  TempDirectory elsewhere;
  std::ofstream(elsewhere.path() + "/precious") << "x";
  fs::create_directory_symlink(elsewhere.path(), root_ + "/step-00000050");
  EXPECT_THAT(*Prune(root_, 3), ElementsAre(50, 100));
  EXPECT_TRUE(fs::exists(elsewhere.path() + "/precious"));
}

TEST_F(Retention, LaterOnesAreSetAsideNotRemoved) {
  EXPECT_THAT(*AbandonLater(root_, 200, 4), ElementsAre(300, 400));
  EXPECT_EQ(NewestValid(root_)->step, 200);
  EXPECT_EQ(LoadSample(root_ + "/abandoned-4/step-00000400", 400, 2), "");
  // The same step again, by the same attempt: the first one set aside is not overwritten.
  ASSERT_TRUE(SaveSample(root_, 300, kFence, 1));
  EXPECT_THAT(*AbandonLater(root_, 200, 4), ElementsAre(300));
  EXPECT_TRUE(fs::exists(root_ + "/abandoned-4.1/step-00000300"));
  EXPECT_THAT(*AbandonLater(root_, 200, 4), IsEmpty());
}

}  // namespace
}  // namespace trainyard::checkpoint
