#include "trainer/checkpoint/retention.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/forwarding_file_system.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const Fence kFence{"uid", 4, 0};

// Oldest first.
std::vector<int64_t> StepsOf(const std::string& root) {
  std::vector<int64_t> steps;
  const Result<std::vector<CheckpointInfo>> list = List(root);
  for (auto it = list->rbegin(); it != list->rend(); ++it) steps.push_back(it->step);
  return steps;
}

class Retention : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TakeOver(root_, kFence));
    for (int64_t step : {100, 200, 300, 400}) ASSERT_TRUE(SaveSample(root_, step, kFence, 1));
  }
  std::vector<int64_t> Steps() const { return StepsOf(root_); }
  void Break(int64_t step) { fs::remove(root_ + "/" + StepDirectory(step) + "/" + ShardPath("model", 0)); }

  TempDirectory temp_;
  const std::string root_ = temp_.path();
};

TEST_F(Retention, KeepsTheNewest) {
  EXPECT_THAT(Prune(root_, Keep{.last = 2})->removed, ElementsAre(100, 200));
  EXPECT_THAT(Steps(), ElementsAre(300, 400));
  EXPECT_THAT(Prune(root_, Keep{.last = 2})->removed, IsEmpty());
  EXPECT_EQ(LoadSample(root_ + "/step-00000300", 300, 2), "");
}

TEST_F(Retention, NeverRemovesTheNewestValidOne) {
  Break(400);
  Break(300);
  EXPECT_THAT(Prune(root_, Keep{.last = 1})->removed, ElementsAre(100));
  EXPECT_EQ(NewestValid(root_)->step, 200);
  Break(200);
  EXPECT_THAT(Prune(root_, Keep{.last = 1})->removed, IsEmpty()) << "without a valid one nothing goes";
}

TEST_F(Retention, BadOnesDoNotCountAndGoWhenTheyAreOld) {
  Break(200);
  EXPECT_THAT(Prune(root_, Keep{.last = 2})->removed, ElementsAre(100, 200));
}

TEST_F(Retention, OneThatIsKnownToBeDamagedDoesNotCount) {
  EXPECT_THAT(Prune(root_, Keep{.last = 1, .bad = {400}})->removed, ElementsAre(100, 200));
  EXPECT_THAT(Steps(), ElementsAre(300, 400));
}

TEST_F(Retention, OneInUseStays) {
  EXPECT_THAT(Prune(root_, Keep{.last = 1, .in_use = {200}})->removed, ElementsAre(100, 300));
  EXPECT_THAT(Steps(), ElementsAre(200, 400));
}

TEST_F(Retention, FewerThanAskedForStay) {
  EXPECT_THAT(Prune(root_, Keep{.last = 9})->removed, IsEmpty());
  EXPECT_FALSE(Prune(root_, Keep{.last = 0}));
  EXPECT_EQ(Prune(root_ + "/nowhere", Keep{.last = 1}).error().code, ErrorCode::kNotFound);
}

TEST_F(Retention, LinksAreNotFollowed) {
  TempDirectory elsewhere;
  std::ofstream(elsewhere.path() + "/precious") << "x";
  fs::create_directory_symlink(elsewhere.path(), root_ + "/step-00000050");
  EXPECT_THAT(Prune(root_, Keep{.last = 3})->removed, ElementsAre(50, 100));
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

TEST_F(Retention, MultiplesStayEvenWhenTheyAreBad) {
  Break(200);
  const Result<PruneInfo> info = Prune(root_, Keep{.last = 1, .every_steps = 200});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_THAT(info->removed, ElementsAre(100, 300));
  EXPECT_THAT(Steps(), ElementsAre(200, 400));
}

TEST_F(Retention, TheFirstAfterAMultipleStandsForIt) {
  // Multiples of 150: 150 (200 stands for it), 300, and 450 that has not come.
  const auto all = List(root_);
  ASSERT_TRUE(all);
  EXPECT_THAT(NotKept(*all, Keep{.last = 1, .every_steps = 150}), ElementsAre(100));
  EXPECT_THAT(NotKept(*all, Keep{.last = 1, .every_steps = 250}), ElementsAre(100, 200));
  EXPECT_THAT(NotKept(*all, Keep{.last = 1, .every_steps = 1000}), ElementsAre(100, 200, 300));
  EXPECT_THAT(NotKept(*all, Keep{.last = 1, .every_steps = 1}), IsEmpty());
}

TEST_F(Retention, OneThatSomebodyReadsStaysUntilHeIsDone) {
  {
    const Result<Reader> reader = Reader::Open(root_ + "/step-00000200");
    const Result<Reader> another = Reader::Open(root_ + "/step-00000200");
    ASSERT_TRUE(reader && another) << "readers do not exclude each other";
    const Result<PruneInfo> info = Prune(root_, Keep{.last = 1});
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_THAT(info->removed, ElementsAre(100, 300));
    EXPECT_THAT(info->busy, ElementsAre(200));
    EXPECT_EQ(LoadSample(root_ + "/step-00000200", 200, 2), "");
  }
  EXPECT_THAT(Prune(root_, Keep{.last = 1})->removed, ElementsAre(200));
}

TEST_F(Retention, OneThatIsBeingRemovedIsNotThereForReaders) {
  const std::optional<UseLock> alone = UseLock::ToRemove(root_ + "/step-00000400");
  ASSERT_TRUE(alone);
  const Result<Reader> reader = Reader::Open(root_ + "/step-00000400");
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(reader.error().message, testing::HasSubstr("is being removed"));
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300));
  EXPECT_EQ(NewestValid(root_)->step, 300);
}

// Of everything in it: List passes over what is locked for removal.
std::set<std::string> NamesIn(const std::string& root) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename());
  return names;
}

// Lets another attempt take over at the k-th call, as one would while the old one was stopped there.
class TakingOver : public ForwardingFileSystem {
 public:
  TakingOver(const std::string& root, int k) : root_(root), k_(k) {}
  void Before() override {
    if (++calls_ != k_) return;
    EXPECT_TRUE(TakeOver(root_, {"uid", 5, 0}));
    there = NamesIn(root_);
  }
  std::optional<std::set<std::string>> there;  // when the other one had the directory

 private:
  const std::string root_;
  const int k_;
  int calls_ = 0;
};

// Opens of files, by the step directory that they are in.
class CountingOpens : public ForwardingFileSystem {
 public:
  Result<int> OpenRead(const std::string& path) override {
    const size_t at = path.find("step-");
    if (at != std::string::npos) ++opened[path.substr(at, std::string("step-00000000").size())];
    return ForwardingFileSystem::OpenRead(path);
  }
  std::map<std::string, int> opened;
};

std::set<std::string> OpenedWith(const std::string& root, const std::vector<CheckpointInfo>& known) {
  CountingOpens disk;
  EXPECT_TRUE(List(root, Check::kStructure, disk, known));
  std::set<std::string> steps;
  for (const auto& [step, times] : disk.opened) steps.insert(step);
  return steps;
}

TEST_F(Retention, WhatIsKnownAndUnchangedIsNotOpenedAgain) {
  for (int64_t step : {500, 600}) ASSERT_TRUE(SaveSample(root_, step, kFence, 1));
  Break(200);
  const std::vector<CheckpointInfo> known = *List(root_);
  const std::set<std::string> newest = {"step-00000400", "step-00000500", "step-00000600"};
  std::set<std::string> looked_at = newest;
  looked_at.insert("step-00000200");
  EXPECT_EQ(OpenedWith(root_, known), looked_at) << "the newest three, and what was not valid";
  EXPECT_EQ(OpenedWith(root_, {}).size(), 6u);
  // The answer is the same, and what was written again is read again.
  const auto again = List(root_, Check::kStructure, PosixFileSystem(), known);
  ASSERT_EQ(again->size(), known.size());
  for (size_t i = 0; i < known.size(); ++i) {
    EXPECT_EQ((*again)[i].step, known[i].step);
    EXPECT_EQ((*again)[i].bytes, known[i].bytes);
    EXPECT_EQ((*again)[i].valid, known[i].valid);
    EXPECT_EQ((*again)[i].job_uid, "uid");
  }
  const std::string manifest = root_ + "/step-00000100/manifest.json";
  fs::last_write_time(manifest, fs::last_write_time(manifest) + std::chrono::seconds(1));
  looked_at.insert("step-00000100");
  EXPECT_EQ(OpenedWith(root_, known), looked_at);
  // One that is gone is not there any more, and the newest are looked at whatever was known.
  fs::remove_all(root_ + "/step-00000300");
  Break(600);
  const auto after = List(root_, Check::kStructure, PosixFileSystem(), known);
  ASSERT_EQ(after->size(), 5u);
  EXPECT_FALSE((*after)[0].valid);
}

TEST_F(Retention, AnOwnerThatIsNoneAnyMoreRemovesNothing) {
  const std::string saved = root_ + "-saved";
  fs::copy(root_, saved, fs::copy_options::recursive);
  int fenced = 0;
  for (int k = 1;; ++k) {
    SCOPED_TRACE(k);
    fs::remove_all(root_);
    fs::copy(saved, root_, fs::copy_options::recursive);
    TakingOver disk(root_, k);
    const Result<PruneInfo> info = Prune(root_, Keep{.last = 1}, Check::kStructure, disk, &kFence);
    if (!disk.there) {
      EXPECT_TRUE(info);
      break;
    }
    EXPECT_EQ(NamesIn(root_), *disk.there);
    if (info) continue;
    EXPECT_EQ(info.error().code, ErrorCode::kFailedPrecondition) << info.error().message;
    EXPECT_THAT(info.error().message, testing::HasSubstr("a newer attempt took it over"));
    ++fenced;
  }
  EXPECT_GT(fenced, 3);
  fs::remove_all(saved);
}

TEST_F(Retention, ImpossibleRulesAreRefused) {
  EXPECT_EQ(Prune(root_, Keep{.last = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Prune(root_, Keep{.last = 1, .every_steps = -1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 400));
}

}  // namespace
}  // namespace trainyard::checkpoint
