#include "trainer/checkpoint/fence.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/faulty_file_system.h"
#include "tests/trainer/checkpoint/forwarding_file_system.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/contract/contract.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FenceTest : public testing::Test {
 protected:
  TempDirectory temp_{Storage::kMemory};
  const std::string root_ = temp_.path() + "/a/b/job";
  const Fence first_{"uid-a", 1, 0}, second_{"uid-a", 2, 0};
};

TEST_F(FenceTest, ANewerAttemptTakesOverAndTheOlderIsRefused) {
  ASSERT_TRUE(TakeOver(root_, first_));
  const Result<TakeOverInfo> info = TakeOver(root_, second_);
  ASSERT_TRUE(info);
  EXPECT_THAT(info->fenced, testing::ElementsAre("uid-a-1"));
  EXPECT_TRUE(info->warnings.empty());
  const Result<TakeOverInfo> late = TakeOver(root_, first_);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(late.error().message, HasSubstr("belongs to attempt 2"));
  EXPECT_EQ(contract::OwnerAttempt(late.error().message), 2) << "the operator must find it";
  EXPECT_TRUE(SaveSample(root_, 1, second_, 2)) << "the refused one has not hurt the owner";
}

TEST_F(FenceTest, ALateSaveFails) {
  ASSERT_TRUE(TakeOver(root_, first_));
  ASSERT_TRUE(TakeOver(root_, second_));
  const Result<CommitInfo> late = SaveSample(root_, 1, first_, 1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(late.error().message, HasSubstr("a newer attempt took it over"));
  EXPECT_FALSE(fs::exists(StagingDirectory(root_, first_))) << "it must not come back";
}

TEST_F(FenceTest, WhoHasTheDirectoryNowIsNamed) {
  ASSERT_TRUE(TakeOver(root_, first_));
  ASSERT_TRUE(TakeOver(root_, {"uid-other", 1, 0}));
  const Result<CommitInfo> late = SaveSample(root_, 1, first_, 1);
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr(": job uid-other took it over; this one must stop"));
}

TEST_F(FenceTest, ALateCommitFailsThoughEveryShardIsWritten) {
  ASSERT_TRUE(TakeOver(root_, first_));
  const SampleShards shards(SmallModel(), 0, 1, 5);
  SaveRequest request = SampleRequest(root_, 5, first_, 0, 1);
  request.model = shards.model;
  const Result<RankReport> report = WriteShards(request);
  ASSERT_TRUE(report);
  ASSERT_TRUE(TakeOver(root_, second_));
  const Result<CommitInfo> late = Commit(request, "{}", {report->manifest});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(NewestValid(root_).error().code, ErrorCode::kNotFound);
  // What it had staged is gone.
  std::vector<std::string> staging;
  for (const auto& entry : fs::directory_iterator(root_ + "/.staging")) staging.push_back(entry.path().filename());
  EXPECT_THAT(staging, testing::UnorderedElementsAre("owners", "uid-a-2"));
}

// Lets another attempt take over at the k-th call of a commit: each call before the rename fails, or the commit was
// first.
class Interrupting : public ForwardingFileSystem {
 public:
  Interrupting(int64_t k, std::function<void()> action) : k_(k), action_(std::move(action)) {}
  bool done() const { return calls_ >= k_; }
  void Before() override {
    if (++calls_ == k_) action_();
  }

 private:
  const int64_t k_;
  std::function<void()> action_;
  int64_t calls_ = 0;
};

TEST_F(FenceTest, ATakeOverBetweenAnyTwoCallsOfASaveDecidesOnce) {
  int committed = 0, refused = 0;
  for (int64_t k = 1;; ++k) {
    const std::string root = temp_.path() + "/k" + std::to_string(k);
    ASSERT_TRUE(TakeOver(root, first_));
    bool seen = false;
    Interrupting fs(k, [&] {
      ASSERT_TRUE(TakeOver(root, second_));
      seen = NewestValid(root).has_value();
    });
    const Result<CommitInfo> info = SaveSample(root, 5, first_, 2, SmallModel(), fs);
    if (!fs.done()) {
      ASSERT_TRUE(info);
      break;
    }
    // What the new owner saw when TakeOver returned is what stays.
    EXPECT_EQ(NewestValid(root).has_value(), seen) << "call " << k;
    if (!seen) {
      ASSERT_FALSE(info) << "call " << k;
      EXPECT_EQ(info.error().code, ErrorCode::kFailedPrecondition) << "call " << k << ": " << info.error().message;
      EXPECT_FALSE(std::filesystem::exists(StagingDirectory(root, first_))) << "call " << k;
    }
    ++(seen ? committed : refused);
    EXPECT_TRUE(SaveSample(root, 6, second_, 1)) << "call " << k;
  }
  EXPECT_GT(committed, 0);
  EXPECT_GT(refused, 20);
}

TEST_F(FenceTest, OfTwoTakeOversAtTheSameTimeTheNewerAttemptOwnsTheDirectory) {
  int gave_way = 0;
  for (int64_t k = 1;; ++k) {
    const std::string root = temp_.path() + "/t" + std::to_string(k);
    Interrupting fs(k, [&] { ASSERT_TRUE(TakeOver(root, second_)); });
    const Result<TakeOverInfo> older = TakeOver(root, first_, fs);
    if (!fs.done()) break;
    if (!older) {
      ++gave_way;
      EXPECT_EQ(older.error().code, ErrorCode::kFailedPrecondition) << "call " << k << ": " << older.error().message;
    }
    // Whether the older one noticed in time or not, only the newer one can save.
    EXPECT_EQ(SaveSample(root, 5, first_, 1).error().code, ErrorCode::kFailedPrecondition) << "call " << k;
    EXPECT_TRUE(SaveSample(root, 6, second_, 1)) << "call " << k;
    EXPECT_FALSE(TakeOver(root, first_)) << "call " << k;
  }
  EXPECT_GT(gave_way, 10);
}

TEST_F(FenceTest, TheSameAttemptMayTakeOverAgainAndARestartHasItsOwnDirectory) {
  ASSERT_TRUE(TakeOver(root_, first_));
  std::ofstream(StagingDirectory(root_, first_) + "/half") << "x";
  ASSERT_TRUE(TakeOver(root_, first_));
  EXPECT_TRUE(fs::is_empty(StagingDirectory(root_, first_)));
  const Fence restarted{"uid-a", 1, 1};
  ASSERT_TRUE(TakeOver(root_, restarted));
  EXPECT_EQ(SaveSample(root_, 1, first_, 1).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(TakeOver(root_, first_).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(SaveSample(root_, 1, restarted, 1));
  EXPECT_TRUE(TakeOver(root_, second_));
}

TEST_F(FenceTest, AJobThatCameLaterWinsWhateverItsAttempt) {
  const Fence old_job{"uid-old", 9, 0}, new_job{"uid-new", 1, 0};
  ASSERT_TRUE(TakeOver(root_, old_job));
  ASSERT_TRUE(TakeOver(root_, new_job));
  EXPECT_EQ(SaveSample(root_, 1, old_job, 1).error().code, ErrorCode::kFailedPrecondition);
  const Result<TakeOverInfo> back = TakeOver(root_, {"uid-old", 10, 0});
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("taken over by job uid-new from job uid-old"));
  EXPECT_EQ(contract::OwnerAttempt(back.error().message), 0) << "not an attempt of its own job";
  EXPECT_TRUE(TakeOver(root_, {"uid-new", 2, 0}));
}

TEST_F(FenceTest, AttemptsAreComparedAsNumbers) {
  ASSERT_TRUE(TakeOver(root_, {"uid-a", 9, 0}));
  ASSERT_TRUE(TakeOver(root_, {"uid-a", 10, 0}));
  EXPECT_FALSE(TakeOver(root_, {"uid-a", 9, 0}));
}

TEST_F(FenceTest, UnusableIdentitiesAreRefused) {
  for (const char* uid : {"", "../x", "a/b", "a b", ".."}) EXPECT_FALSE(TakeOver(root_, {uid, 1, 0})) << uid;
  EXPECT_FALSE(TakeOver(root_, {"a", -1, 0}));
  EXPECT_FALSE(TakeOver("", {"a", 1, 0}));
}

// A volume mounted read-only.
class ReadOnly : public FaultyFileSystem {
 public:
  ReadOnly() : FaultyFileSystem(Fault::kNone, 0) {}
  Result<int> OpenCreate(const std::string& path) override { return Fail(Refuse(path)); }
  Status MakeDirectory(const std::string& path) override {
    return std::filesystem::exists(path) ? FaultyFileSystem::MakeDirectory(path) : Status(Fail(Refuse(path)));
  }
  Status Rename(const std::string& from, const std::string&) override { return Fail(Refuse(from)); }
  Status RemoveFile(const std::string& path) override { return Fail(Refuse(path)); }

 private:
  static Error Refuse(const std::string& path) {
    return {ErrorCode::kPermissionDenied, path + ": Read-only file system"};
  }
};

TEST_F(FenceTest, AReadOnlyVolumeCanBeReadAndIsNamedWhenItShouldBeWritten) {
  ASSERT_TRUE(TakeOver(root_, first_));
  ASSERT_TRUE(SaveSample(root_, 5, first_, 1));
  ReadOnly fs;
  EXPECT_EQ(NewestValid(root_, 100, Check::kEverything, fs)->step, 5);
  EXPECT_TRUE(Reader::Open(root_ + "/step-00000005", fs));
  const std::string fresh = temp_.path() + "/fresh";
  std::filesystem::create_directory(fresh);
  for (const std::string& root : {root_, fresh}) {
    const Result<TakeOverInfo> info = TakeOver(root, second_, fs);
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(info.error().message, testing::AllOf(HasSubstr("Read-only file system"), HasSubstr(root)));
  }
  EXPECT_EQ(SaveSample(root_, 6, first_, 1, SmallModel(), fs).error().code, ErrorCode::kPermissionDenied);
}

TEST_F(FenceTest, ARootThatCannotBeMadeIsNamed) {
  std::ofstream(temp_.path() + "/a") << "a file";
  const Result<TakeOverInfo> info = TakeOver(root_, first_);
  ASSERT_FALSE(info);
  EXPECT_THAT(info.error().message, HasSubstr(temp_.path() + "/a"));
}

}  // namespace
}  // namespace trainyard::checkpoint
