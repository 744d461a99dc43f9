// Saving, taking over and pruning while the k-th call to the file system fails or the process dies there, for all k:
// the last valid checkpoint always loads, nothing half-written is taken for one, and the next attempt goes on.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/faulty_file_system.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

const Fence kFirst{"uid", 1, 0}, kSecond{"uid", 2, 0}, kThird{"uid", 3, 0};
const std::vector<SampleTensor> kModel = {{"w", {9, 5}}, {"norm", {3}}};

const char* Name(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "None";
    case Fault::kNoSpaceOnce:
      return "NoSpaceOnce";
    case Fault::kNoSpace:
      return "NoSpace";
    case Fault::kIoErrorOnce:
      return "IoErrorOnce";
    case Fault::kDeath:
      return "Death";
    case Fault::kPowerLoss:
      return "PowerLoss";
  }
  return "";
}

struct Outcome {
  Status status;
  bool died = false;
  bool fired = false;
};

template <typename Work>
Outcome RunWith(Fault fault, int64_t k, const Work& work) {
  FaultyFileSystem fs(fault, k);
  Outcome out;
  try {
    out.status = work(fs);
  } catch (const ProcessDied&) {
    out.died = true;
    if (fault == Fault::kPowerLoss) fs.LosePower();
  }
  out.fired = fs.fired();
  return out;
}

// Every checkpoint that List calls valid must hold every byte of its step, and there must be one.
int64_t NewestThatLoads(const std::string& root) {
  const Result<std::vector<CheckpointInfo>> list = List(root);
  if (!list) return -1;
  int64_t newest = -1;
  for (const CheckpointInfo& info : *list) {
    if (!info.valid) continue;
    EXPECT_EQ(LoadSample(info.path, info.step, 3, kModel), "") << info.path;
    const Result<VerifyReport> report = Verify(info.path);
    EXPECT_TRUE(report && report->ok()) << info.path << " is called valid";
    newest = std::max(newest, info.step);
  }
  return newest;
}

class EveryCall : public testing::TestWithParam<Fault> {
 protected:
  // Calls `prepare`, then `work` with the fault at call k, then `check`, in a fresh directory for k = 1, 2, ... until
  // the work ends before call k.
  template <typename Prepare, typename Work, typename Check>
  void ForAllK(const Prepare& prepare, const Work& work, const Check& check) {
    int64_t k = 1;
    for (;; ++k) {
      SCOPED_TRACE(std::string(Name(GetParam())) + " at call " + std::to_string(k));
      TempDirectory temp(Storage::kMemory);
      FaultyFileSystem sound(Fault::kNone, 0);
      prepare(temp.path(), sound);
      const Outcome outcome = RunWith(GetParam(), k, [&](FileSystem& fs) { return work(temp.path(), fs); });
      if (HasFatalFailure()) return;
      check(temp.path(), outcome, sound);
      if (HasFailure()) return;
      // An error at a call that needs no space changes nothing under NoSpace, so only a whole run without any ends it.
      if (!outcome.fired && !outcome.died && k > last_call_) break;
    }
    std::printf("%s: %lld calls\n", Name(GetParam()), static_cast<long long>(k - 1));
    EXPECT_GT(k, 20);
  }
  int64_t last_call_ = 0;
};

TEST_P(EveryCall, OfASaveLeavesTheLastCheckpointOrTheNewOne_Bug20_27) {
  const auto save = [](const std::string& root, FileSystem& fs) -> Status {
    if (Result<TakeOverInfo> taken = TakeOver(root, kSecond, fs); !taken) return Fail(taken.error());
    if (Result<CommitInfo> info = SaveSample(root, 200, kSecond, 2, kModel, fs); !info) return Fail(info.error());
    Result<PruneInfo> pruned = Prune(root, Keep{.last = 1}, Check::kStructure, fs);
    return pruned ? Status() : Status(Fail(pruned.error()));
  };
  {
    TempDirectory temp(Storage::kMemory);
    FaultyFileSystem sound(Fault::kNone, 0);
    ASSERT_TRUE(save(temp.path(), sound));
    last_call_ = sound.calls() + 40;  // pruning one checkpoint more takes some
  }
  ForAllK(
      [](const std::string& root, FileSystem& fs) {
        ASSERT_TRUE(TakeOver(root, kFirst, fs));
        ASSERT_TRUE(SaveSample(root, 100, kFirst, 3, kModel, fs));
        // What a dead first attempt left.
        SaveRequest request = SampleRequest(root, 150, kFirst, 0, 1);
        const SampleShards shards(kModel, 0, 1, 150);
        request.model = shards.model;
        ASSERT_TRUE(WriteShards(request, fs));
      },
      save,
      [](const std::string& root, const Outcome& outcome, FileSystem& sound) {
        const int64_t newest = NewestThatLoads(root);
        EXPECT_TRUE(newest == 100 || newest == 200) << newest;
        if (!outcome.died && outcome.status) {
          EXPECT_EQ(newest, 200);
        }
        // The error says what it was, and is never taken for the fence.
        if (!outcome.status) {
          EXPECT_THAT(outcome.status.error().message, testing::HasSubstr("injected"));
          EXPECT_NE(outcome.status.error().code, ErrorCode::kFailedPrecondition);
        }
        const Result<CheckpointInfo> found = NewestValid(root);
        ASSERT_TRUE(found) << found.error().message;
        EXPECT_EQ(found->step, newest);
        const Result<std::vector<CheckpointInfo>> list = List(root);
        ASSERT_TRUE(list);
        for (const CheckpointInfo& info : *list) {
          EXPECT_TRUE(info.valid) << "half written or half removed, and visible: " << info.path << ": " << info.problem;
        }
        // The next attempt goes on and leaves nothing behind.
        const Result<TakeOverInfo> taken = TakeOver(root, kThird, sound);
        ASSERT_TRUE(taken) << taken.error().message;
        EXPECT_TRUE(taken->warnings.empty());
        ASSERT_TRUE(SaveSample(root, 200, kThird, 2, kModel, sound));
        ASSERT_TRUE(Prune(root, Keep{.last = 1}, Check::kStructure, sound));
        EXPECT_EQ(NewestThatLoads(root), 200);
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(root)) names.push_back(entry.path().filename());
        for (const auto& entry : std::filesystem::directory_iterator(root + "/.staging")) {
          names.push_back(entry.path().filename());
        }
        EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000200", ".staging", "owners", "uid-3"));
      });
}

TEST_P(EveryCall, OfASaveMayBeTriedAgainByTheSameAttempt_Bug22) {
  const auto save = [](const std::string& root, FileSystem& fs) -> Status {
    Result<CommitInfo> info = SaveSample(root, 200, kSecond, 2, kModel, fs);
    return info ? Status() : Status(Fail(info.error()));
  };
  last_call_ = 120;
  ForAllK(
      [](const std::string& root, FileSystem& fs) {
        ASSERT_TRUE(TakeOver(root, kSecond, fs));
        ASSERT_TRUE(SaveSample(root, 100, kSecond, 3, kModel, fs));
        // A bad checkpoint of the step, which the save replaces.
        ASSERT_TRUE(SaveSample(root, 200, kSecond, 1, kModel, fs));
        std::filesystem::remove(root + "/step-00000200/" + ShardPath("model", 0));
      },
      save,
      [&](const std::string& root, const Outcome& outcome, FileSystem& sound) {
        EXPECT_GE(NewestThatLoads(root), 100);
        if (outcome.died) return;
        const Status again = save(root, sound);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(NewestThatLoads(root), 200);
      });
}

TEST_P(EveryCall, OfSettingLaterCheckpointsAside) {
  last_call_ = 60;
  ForAllK(
      [](const std::string& root, FileSystem& fs) {
        ASSERT_TRUE(TakeOver(root, kFirst, fs));
        for (int64_t step : {100, 200, 300}) ASSERT_TRUE(SaveSample(root, step, kFirst, 1, kModel, fs));
      },
      [](const std::string& root, FileSystem& fs) -> Status {
        Result<std::vector<int64_t>> moved = AbandonLater(root, 100, 2, fs);
        return moved ? Status() : Status(Fail(moved.error()));
      },
      [](const std::string& root, const Outcome&, FileSystem& sound) {
        EXPECT_GE(NewestThatLoads(root), 100);
        ASSERT_TRUE(AbandonLater(root, 100, 2, sound));
        EXPECT_EQ(NewestThatLoads(root), 100);
      });
}

TEST_P(EveryCall, OfClearingAFailedSaveAwayLeavesTheLastCheckpoint) {
  last_call_ = 40;
  ForAllK(
      [](const std::string& root, FileSystem& fs) {
        ASSERT_TRUE(TakeOver(root, kSecond, fs));
        ASSERT_TRUE(SaveSample(root, 100, kSecond, 2, kModel, fs));
        for (int rank = 0; rank < 2; ++rank) {
          SaveRequest request = SampleRequest(root, 200, kSecond, rank, 2);
          const SampleShards shards(kModel, rank, 2, 200);
          request.model = shards.model;
          request.optim = shards.optim;
          ASSERT_TRUE(WriteShards(request, fs));
        }
      },
      [](const std::string& root, FileSystem& fs) { return Discard(SampleRequest(root, 200, kSecond, 0, 2), fs); },
      [](const std::string& root, const Outcome& outcome, FileSystem& sound) {
        EXPECT_EQ(NewestThatLoads(root), 100);
        const std::string staged = StagingDirectory(root, kSecond) + "/" + StepDirectory(200);
        if (!outcome.died && outcome.status) {
          EXPECT_FALSE(std::filesystem::exists(staged));
        }
        // Whatever is left of it is in nobody's way.
        ASSERT_TRUE(SaveSample(root, 200, kSecond, 2, kModel, sound));
        EXPECT_EQ(NewestThatLoads(root), 200);
        ASSERT_TRUE(Discard(SampleRequest(root, 200, kSecond, 0, 2), sound));
        EXPECT_EQ(NewestThatLoads(root), 200);
      });
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCall,
                         testing::Values(Fault::kNoSpaceOnce, Fault::kNoSpace, Fault::kIoErrorOnce, Fault::kDeath,
                                         Fault::kPowerLoss),
                         [](const auto& info) { return Name(info.param); });

// A read error while resuming is an error or a named loss, never wrong numbers.
TEST(ReadFaults, AreReported) {
  TempDirectory temp(Storage::kMemory);
  FaultyFileSystem sound(Fault::kNone, 0);
  ASSERT_TRUE(TakeOver(temp.path(), kFirst, sound));
  ASSERT_TRUE(SaveSample(temp.path(), 100, kFirst, 2, kModel, sound));
  for (int64_t k = 1;; ++k) {
    FaultyFileSystem fs(Fault::kIoErrorOnce, k);
    SampleShards shards(kModel, 0, 1, -1);
    Result<Reader> reader = Reader::Open(temp.path() + "/step-00000100", fs);
    const Status read = reader ? reader->Read(shards.all()) : Status(Fail(reader.error()));
    if (read) {
      EXPECT_EQ(shards.Wrong(100), 0) << k;  // the fault met a close
    }
    if (!read) {
      EXPECT_THAT(read.error().message, testing::HasSubstr("injected")) << k;
    }
    if (!fs.fired()) {
      EXPECT_GT(k, 15);
      break;
    }
  }
}

}  // namespace
}  // namespace trainyard::checkpoint
