// Saves beside training: what is written is the state of the step at which the save began, whatever training does
// meanwhile and however slow the disk is; a save that fails leaves training and the last checkpoint alone.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/trainer/checkpoint/forwarding_file_system.h"
#include "tests/trainer/loop/checkpoint_tensors.h"
#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/save.h"
#include "trainer/loop/train_step.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSaved = 3;  // the step that is saved
constexpr int64_t kManySteps = 10'000;

// A disk that stands still until it is let go.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class GatedFileSystem : public checkpoint::ForwardingFileSystem {
 public:
  explicit GatedFileSystem(Gate& gate) : gate_(gate) {}
  Status WriteAt(int fd, const void* d, int64_t n, int64_t o, const std::string& p) override {
    gate_.Pass();
    return ForwardingFileSystem::WriteAt(fd, d, n, o, p);
  }

 private:
  Gate& gate_;
};

// A disk that refuses while it is told to.
class RefusingFileSystem : public checkpoint::ForwardingFileSystem {
 public:
  Status WriteAt(int fd, const void* d, int64_t n, int64_t o, const std::string& p) override {
    return writes ? Status(Fail(*writes, "injected: write " + p)) : ForwardingFileSystem::WriteAt(fd, d, n, o, p);
  }
  Status Rename(const std::string& a, const std::string& b) override {
    return renames ? Status(Fail(*renames, "injected: rename " + a)) : ForwardingFileSystem::Rename(a, b);
  }
  std::optional<ErrorCode> writes, renames;
};

class SaveTest : public ThreadRanksTest {
 protected:
  SaveTest() {
    job_["checkpoint"]["keepLast"] = 0;
    job_["training"]["globalBatchSize"] = 6;
    job_["training"]["microBatchSize"] = 1;
    job_["training"]["threads"] = 1;  // ranks are threads already
  }

  static Outcome<void> Step(Session& s) {
    auto result = TrainStep(s, s.progress.step + 1);
    if (!result) return Fails(result.error());
    return s.saver ? s.saver->Move(result->saving) : Outcome<void>();
  }
  static Outcome<void> Steps(Session& s, int64_t last) {
    while (s.progress.step < last) {
      if (auto done = Step(s); !done) return done;
    }
    return {};
  }
  // Trains until `condition`, which has to come true at the same step on all ranks.
  static Outcome<void> StepsUntil(Session& s, const std::function<bool()>& condition) {
    while (!condition()) {
      if (s.progress.step == kManySteps) return Fails(contract::kExitInternal, "it never came");
      if (auto done = Step(s); !done) return done;
    }
    return {};
  }

  std::string Root(const std::string& path) const { return dir_ / ("volumes/checkpoints/" + path); }
  void SaveTo(const std::string& path) { job_["checkpoint"]["path"] = path; }

  // The state after kSaved steps, saved while nothing else happens.
  Tensors Reference(int world, const std::string& path) {
    SaveTo(path);
    const std::string failure = OnRanks(world, [](Session& s) -> Outcome<void> {
      if (auto restored = Restore(s); !restored) return restored;
      if (auto done = Steps(s, kSaved); !done) return done;
      return Save(s);
    });
    EXPECT_EQ(failure, "");
    return ReadTensors(Root(path), kSaved);
  }
  void ExpectSame(const Tensors& reference, const std::string& path) {
    const Tensors tensors = ReadTensors(Root(path), kSaved);
    ASSERT_EQ(tensors.size(), reference.size());
    for (const auto& [name, bytes] : reference) EXPECT_TRUE(tensors.at(name) == bytes) << name;
  }
};

TEST_F(SaveTest, TrainingGoesOnWhileTheDiskStandsStill) {
  for (const std::string strategy : {"FSDP", "DDP", "ZeRO1", "ZeRO2", "HSDP"}) {
    for (const std::string precision : {"FP32", "BF16"}) {
      const int world = strategy == "HSDP" ? 4 : strategy == "DDP" ? 1 : 3;
      SCOPED_TRACE(strategy + " " + precision);
      job_["parallelism"] = {{"strategy", strategy}};
      if (strategy == "HSDP") job_["parallelism"]["shardSize"] = 2;
      job_["training"]["precision"] = precision;
      const Tensors reference = Reference(world, "reference-" + strategy + precision);
      SaveTo(strategy + precision);
      Gate gate;
      const std::string failure = OnRanks(world, [&](Session& s) -> Outcome<void> {
        if (auto restored = Restore(s); !restored) return restored;
        GatedFileSystem disk(gate);
        s.saver = std::make_unique<Saver>(s, disk);
        if (auto done = Steps(s, kSaved); !done) return done;
        s.saver->Begin();
        for (int64_t more = 1; more <= 4; ++more) {
          if (auto done = Steps(s, kSaved + more); !done) return done;
          if (more == 2) s.saver->Begin();  // waits
          EXPECT_FALSE(s.progress.saved_step);
        }
        s.world->Barrier();
        gate.Open();
        if (auto done = StepsUntil(s, [&] { return s.progress.saved_step.has_value(); }); !done) return done;
        EXPECT_EQ(s.progress.saved_step, kSaved);
        const int64_t next = s.progress.step;  // the one that waited begins at once
        if (auto done = StepsUntil(s, [&] { return s.progress.saved_step != kSaved; }); !done) return done;
        EXPECT_EQ(s.progress.saved_step, next);
        if (s.env.rank == 0) {
          const auto& status = *s.report->status().checkpoint;
          EXPECT_EQ(status.step, next);
          EXPECT_EQ(status.failures, 0);
          EXPECT_GE(status.stall_seconds.value_or(-1), 0);
          EXPECT_GT(status.write_seconds.value_or(-1), 0);
          EXPECT_GT(status.free_bytes.value_or(-1), 0);
          EXPECT_NEAR(static_cast<double>(*status.directory_bytes), 2.0 * static_cast<double>(status.bytes), 64)
              << "two of the same size, but for digits";
        }
        s.saver.reset();
        return {};
      });
      ASSERT_EQ(failure, "");
      ExpectSame(reference, strategy + precision);
    }
  }
}

TEST_F(SaveTest, WithLittleMemoryTrainingWaitsForTheRest) {
  for (const int world : {1, 3}) {
    const Tensors reference = Reference(world, "reference" + std::to_string(world));
    int64_t state = 0;
    for (const auto& [name, bytes] : reference) state += static_cast<int64_t>(bytes.size());
    for (const int64_t budget : {int64_t{0}, state / world / 20, state / world / 2}) {
      SCOPED_TRACE(std::to_string(world) + " ranks with " + std::to_string(budget) + " bytes");
      const std::string path = std::to_string(world) + "-" + std::to_string(budget);
      SaveTo(path);
      const std::string failure = OnRanks(world, [&](Session& s) -> Outcome<void> {
        s.env.checkpoint_memory_bytes = budget;
        if (auto restored = Restore(s); !restored) return restored;
        s.saver = std::make_unique<Saver>(s);
        if (auto done = Steps(s, kSaved); !done) return done;
        s.saver->Begin();
        return StepsUntil(s, [&] { return s.progress.saved_step == kSaved; });
      });
      ASSERT_EQ(failure, "");
      ExpectSame(reference, path);
    }
  }
}

TEST_F(SaveTest, AStopComesAfterTheSaveUnderWay) {
  const std::string failure = OnRanks(2, [](Session& s) -> Outcome<void> {
    if (auto restored = Restore(s); !restored) return restored;
    s.saver = std::make_unique<Saver>(s);
    if (auto done = Steps(s, kSaved); !done) return done;
    s.saver->Begin();
    if (auto done = TrainStep(s, kSaved + 1); !done) return Fails(done.error());
    return Save(s);
  });
  ASSERT_EQ(failure, "");
  for (const int64_t step : {kSaved, kSaved + 1}) EXPECT_FALSE(ReadTensors(Root("tiny"), step).empty());
}

TEST_F(SaveTest, AFailedSaveIsEveryRanksAndEndsNothing) {
  struct Case {
    int rank;
    std::optional<ErrorCode> writes, renames;
  };
  const std::vector<Case> cases = {{1, ErrorCode::kResourceExhausted, {}}, {1, ErrorCode::kDataLoss, {}},
                                   {0, ErrorCode::kPermissionDenied, {}},  {2, ErrorCode::kUnavailable, {}},
                                   {0, {}, ErrorCode::kDataLoss},          {0, {}, ErrorCode::kResourceExhausted}};
  for (size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    SaveTo("case" + std::to_string(c));
    const std::string failure = OnRanks(3, [&](Session& s) -> Outcome<void> {
      if (auto restored = Restore(s); !restored) return restored;
      RefusingFileSystem disk;
      const auto refuse = [&](bool on) {
        if (s.env.rank != cases[c].rank) return;
        disk.writes = on ? cases[c].writes : std::nullopt;
        disk.renames = on ? cases[c].renames : std::nullopt;
      };
      s.saver = std::make_unique<Saver>(s, disk);
      if (auto done = Steps(s, kSaved); !done) return done;
      for (int64_t failed = 1; failed <= 2; ++failed) {
        refuse(true);
        s.saver->Begin();
        if (auto done = StepsUntil(s, [&] { return s.saver->failures() == failed; }); !done) return done;
        EXPECT_FALSE(s.progress.saved_step);
      }
      const std::string staging = checkpoint::StagingDirectory(s.CheckpointRoot(), {s.env.uid, s.env.attempt, 0});
      s.world->Barrier();
      EXPECT_TRUE(std::filesystem::is_empty(staging)) << "what was written of it is in the way of the next one";
      if (s.env.rank == 0) {
        const std::string& said = s.report->status().checkpoint->failure;
        EXPECT_THAT(said, AllOf(HasSubstr("checkpoint of step "), HasSubstr(" not written: "), HasSubstr("injected")));
        if (cases[c].writes) {
          EXPECT_THAT(said, HasSubstr("rank " + std::to_string(cases[c].rank)));
        }
        EXPECT_EQ(s.report->status().checkpoint->failures, 2);
      }
      s.world->Barrier();
      // The end of training does not pass over it.
      auto ended = Save(s);
      EXPECT_FALSE(ended);
      if (!ended) {
        EXPECT_EQ(ended.error().exit_code, contract::kExitStorage);
      }
      refuse(false);
      s.saver->Begin();
      if (auto done = StepsUntil(s, [&] { return s.progress.saved_step.has_value(); }); !done) return done;
      EXPECT_EQ(s.saver->failures(), 0);
      if (s.env.rank == 0) {
        EXPECT_EQ(s.report->status().checkpoint->failures, 0);
        EXPECT_EQ(s.report->status().checkpoint->failure, "");
      }
      s.saver.reset();
      return {};
    });
    ASSERT_EQ(failure, "");
    const auto list = checkpoint::List(Root("case" + std::to_string(c)), checkpoint::Check::kEverything);
    ASSERT_TRUE(list);
    ASSERT_EQ(list->size(), 1u);
    EXPECT_TRUE(list->front().valid) << list->front().problem;
  }
}

TEST_F(SaveTest, AFencedRankEnds) {
  const std::string failure = OnRanks(2, [&](Session& s) -> Outcome<void> {
    if (auto restored = Restore(s); !restored) return restored;
    s.saver = std::make_unique<Saver>(s);
    if (auto done = Steps(s, kSaved); !done) return done;
    if (s.env.rank == 0) {
      const auto taken = checkpoint::TakeOver(s.CheckpointRoot(), {s.env.uid, s.env.attempt + 1, 0});
      if (!taken) return Fails(contract::kExitInternal, taken.error().message);
    }
    s.world->Barrier();
    s.saver->Begin();
    while (s.progress.step < kManySteps) {
      if (auto done = Step(s); !done) {
        EXPECT_EQ(done.error().exit_code, contract::kExitFenced);
        EXPECT_FALSE(s.report->status().checkpoint && s.report->status().checkpoint->failures > 0)
            << "it ends training, and is no save that will be tried again";
        return done;
      }
    }
    return {};
  });
  EXPECT_THAT(failure, HasSubstr("a newer attempt took it over"));
}

}  // namespace
}  // namespace trainyard::loop
