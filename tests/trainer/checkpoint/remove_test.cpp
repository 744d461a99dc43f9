// The end of a job's checkpoints: all of its own, nothing of anybody else's, whatever happens in between.
#include "trainer/checkpoint/remove.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/faulty_file_system.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RemoveAllTest : public testing::Test {
 protected:
  void Save(const Fence& fence, const std::vector<int64_t>& steps) {
    ASSERT_TRUE(TakeOver(root_, fence));
    for (int64_t step : steps) ASSERT_TRUE(SaveSample(root_, step, fence, 1));
  }

  TempDirectory temp_{Storage::kMemory};
  const std::string root_ = temp_.path() + "/runs/job";
  const Fence fence_{"uid-a", 3, 0}, later_{"uid-b", 1, 0};
};

TEST_F(RemoveAllTest, TakesStepsAndWhatWasSetAsideAndTheDirectoryWithThem) {
  Save(fence_, {100, 200, 300});
  ASSERT_TRUE(AbandonLater(root_, 200, 3));
  const auto removal = RemoveAll(root_, "uid-a");
  ASSERT_TRUE(removal) << removal.error().message;
  EXPECT_THAT(removal->removed, ElementsAre("abandoned-3", "step-00000100", "step-00000200"));
  EXPECT_THAT(removal->left, IsEmpty());
  EXPECT_FALSE(fs::exists(root_));
  EXPECT_TRUE(fs::exists(temp_.path() + "/runs")) << "what is above belongs to others";
}

TEST_F(RemoveAllTest, LeavesFilesOfOthers) {
  Save(fence_, {100});
  std::ofstream(root_ + "/notes.txt") << "mine";
  const auto removal = RemoveAll(root_, "uid-a");
  ASSERT_TRUE(removal) << removal.error().message;
  EXPECT_THAT(removal->left, ElementsAre("notes.txt"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("notes.txt"));
}

TEST_F(RemoveAllTest, RefusesADirectoryThatAnotherJobHasTakenOver) {
  Save(fence_, {100});
  Save(later_, {200});
  const auto removal = RemoveAll(root_, "uid-a");
  ASSERT_FALSE(removal);
  EXPECT_EQ(removal.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(removal.error().message, HasSubstr("was taken over by job uid-b from job uid-a"));
  EXPECT_EQ(List(root_)->size(), 2u);
  EXPECT_TRUE(SaveSample(root_, 300, later_, 1)) << "its owner is not disturbed";
}

TEST_F(RemoveAllTest, LeavesWhatSomebodyReadsUntilThatIsOver) {
  Save(fence_, {100, 200});
  {
    const auto reader = UseLock::ToRead(root_ + "/step-00000200");
    ASSERT_TRUE(reader);
    const auto removal = RemoveAll(root_, "uid-a");
    ASSERT_TRUE(removal) << removal.error().message;
    EXPECT_THAT(removal->removed, ElementsAre("step-00000100"));
    EXPECT_THAT(removal->busy, ElementsAre("step-00000200"));
    EXPECT_EQ(LoadSample(root_ + "/step-00000200", 200, 1), "");
  }
  ASSERT_TRUE(RemoveAll(root_, "uid-a"));
  EXPECT_FALSE(fs::exists(root_));
}

TEST_F(RemoveAllTest, RemovesNothingWhereNobodyEverSaved) {
  EXPECT_TRUE(RemoveAll(root_, "uid-a")) << "not even there";
  EXPECT_FALSE(fs::exists(root_));
  fs::create_directories(root_ + "/step-00000007");
  const auto removal = RemoveAll(root_, "uid-a");
  ASSERT_TRUE(removal) << removal.error().message;
  EXPECT_THAT(removal->removed, IsEmpty());
  EXPECT_TRUE(fs::exists(root_ + "/step-00000007"));
}

TEST_F(RemoveAllTest, FencesOffAProcessThatStillRuns) {
  Save(fence_, {100});
  ASSERT_TRUE(RemoveAll(root_, "uid-a"));
  const auto late = SaveSample(root_, 200, fence_, 1);
  ASSERT_FALSE(late);
  EXPECT_FALSE(fs::exists(root_));
}

// Whatever call is the first that fails, another try removes all.
TEST_F(RemoveAllTest, ATryThatFailedIsFollowedByOneThatDoesNot) {
  for (int64_t k = 1;; ++k) {
    Save(fence_, {100, 200});
    FaultyFileSystem faulty(Fault::kIoErrorOnce, k);
    const auto removal = RemoveAll(root_, "uid-a", faulty);
    if (!faulty.fired()) {
      EXPECT_GT(k, 20) << "every call of a removal has failed once";
      break;
    }
    ASSERT_LT(k, 1000);
    const auto again = RemoveAll(root_, "uid-a");
    ASSERT_TRUE(again) << "after the failure of call " << k << ": " << again.error().message;
    EXPECT_FALSE(fs::exists(root_ + "/step-00000100")) << k;
    EXPECT_FALSE(fs::exists(root_ + "/step-00000200")) << k;
    fs::remove_all(root_);
  }
}

}  // namespace
}  // namespace trainyard::checkpoint
