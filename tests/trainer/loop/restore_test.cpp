// Where a job starts: at its own checkpoint, at that of another job, with its weights alone, and never from nothing in
// silence; and how much is read for it.
#include <cstdio>
#include <fstream>

#include "tests/trainer/loop/checkpoint_tensors.h"
#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/import.h"
#include "trainer/loop/optimizer.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/save.h"
#include "trainer/loop/train_step.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RestoreTest : public ThreadRanksTest {
 protected:
  RestoreTest() {
    job_["checkpoint"]["keepLast"] = 0;
    job_["training"]["globalBatchSize"] = 6;
    job_["training"]["microBatchSize"] = 1;
    job_["training"]["threads"] = 1;  // ranks are threads already
    job_["checkpoint"]["path"] = "source";
  }

  static Outcome<void> TrainAndSave(Session& s, const std::vector<int64_t>& saves) {
    if (auto restored = Restore(s); !restored) return restored;
    for (const int64_t save : saves) {
      while (s.progress.step < save) {
        if (auto done = TrainStep(s, s.progress.step + 1); !done) return Fails(done.error());
      }
      if (auto saved = Save(s); !saved) return saved;
    }
    return {};
  }
  void MakeSource(const std::vector<int64_t>& saves = {2, 4}) {
    ASSERT_EQ(OnRanks(2, [&](Session& s) { return TrainAndSave(s, saves); }), "");
  }
  // From now on the job is another one that starts from the source.
  void Fork(int64_t step = 0, bool weights_only = false) {
    job_["checkpoint"]["path"] = "fork";
    job_["checkpoint"]["resumeFrom"] = {
        {"volume", "checkpoints"}, {"path", "source"}, {"step", step}, {"weightsOnly", weights_only}};
  }
  std::string Root(const std::string& path) const { return dir_ / ("volumes/checkpoints/" + path); }
  void Damage(int64_t step) {
    const std::string directory = Root("source") + "/" + checkpoint::StepDirectory(step) + "/model";
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-1, std::ios::end);
      const char byte = static_cast<char>(file.get() ^ 1);
      file.seekp(-1, std::ios::end);
      file.put(byte);
    }
  }
  // Runs `look` after a restore at 3 ranks, and saves what was restored as step `as`.
  std::string RestoredAs(int64_t as, const std::function<void(Session&)>& look = [](Session&) {}) {
    return OnRanks(3, [&](Session& s) -> Outcome<void> {
      if (auto restored = Restore(s); !restored) return restored;
      look(s);
      s.progress.step = as;
      return Save(s);
    });
  }
};

TEST_F(RestoreTest, AForkGoesOnWithEverythingAndThenWithItsOwn) {
  MakeSource();
  Fork();
  ASSERT_EQ(RestoredAs(4,
                       [](Session& s) {
                         EXPECT_EQ(s.progress.step, 4);
                         EXPECT_EQ(s.progress.cursor, 24);
                         EXPECT_FALSE(s.progress.saved_step) << "it has no checkpoint of its own";
                       }),
            "");
  EXPECT_TRUE(ReadTensors(Root("fork"), 4) == ReadTensors(Root("source"), 4));
  // The source may change or go: what the job has of its own counts.
  std::filesystem::remove_all(Root("source"));
  EXPECT_EQ(RestoredAs(5, [](Session& s) { EXPECT_EQ(s.progress.saved_step, 4); }), "");
}

TEST_F(RestoreTest, AStepOfTheSourceIsThatStepOrAnError) {
  MakeSource();
  Fork(2);
  EXPECT_EQ(RestoredAs(2, [](Session& s) { EXPECT_EQ(s.progress.step, 2); }), "");
  Fork(3);
  job_["checkpoint"]["path"] = "fork3";
  EXPECT_THAT(RestoredAs(3), AllOf(HasSubstr("step 3 of "), HasSubstr("cannot be read: it is not there")));
  Damage(2);
  Fork(2);
  job_["checkpoint"]["path"] = "fork2";
  EXPECT_THAT(RestoredAs(2), HasSubstr("cannot be read: its data is damaged"));
}

TEST_F(RestoreTest, ADamagedSourceGivesWayToAnOlderOneAndANameThatLeadsNowhereIsAnError) {
  MakeSource();
  Damage(4);
  Fork();
  EXPECT_EQ(RestoredAs(2, [](Session& s) { EXPECT_EQ(s.progress.step, 2); }), "");
  EXPECT_TRUE(ReadTensors(Root("fork"), 2) == ReadTensors(Root("source"), 2));
  EXPECT_TRUE(std::filesystem::exists(Root("source") + "/" + checkpoint::StepDirectory(4)))
      << "the source is only read";
  Damage(2);
  job_["checkpoint"]["path"] = "another";
  EXPECT_THAT(RestoredAs(2), AllOf(HasSubstr("checkpoint.resumeFrom: no checkpoint can be read: every one in "),
                                   HasSubstr("is damaged; the oldest that was tried: "), HasSubstr("step-00000002"),
                                   HasSubstr("model/shard-"), HasSubstr("tensor ")));
  job_["checkpoint"]["resumeFrom"]["path"] = "nowhere";
  const std::string failure = OnRanks(2, [](Session& s) -> Outcome<void> {
    auto restored = Restore(s);
    if (!restored) {
      EXPECT_EQ(restored.error().exit_code, contract::kExitCheckpoint);
    }
    return restored;
  });
  EXPECT_THAT(failure, AllOf(HasSubstr("checkpoint.resumeFrom: "), HasSubstr("nowhere"),
                             HasSubstr("training does not start from nothing in its place")));
}

TEST_F(RestoreTest, WhereEveryOneIsDamagedThatIsSaidWithTheOldest) {
  MakeSource();
  for (const int64_t step : {2, 4}) Damage(step);
  const std::string failure = OnRanks(2, [](Session& s) -> Outcome<void> {
    auto restored = Restore(s);
    EXPECT_FALSE(restored);
    if (!restored && s.env.rank == 0) {
      EXPECT_EQ(restored.error().exit_code, contract::kExitCheckpoint);
    }
    return restored;
  });
  EXPECT_THAT(failure, AllOf(HasSubstr("no checkpoint can be read: every one in " + Root("source") + " is damaged"),
                             HasSubstr("step-00000002/model/shard-"), HasSubstr("tensor "), HasSubstr("of rank ")));
}

TEST_F(RestoreTest, AJobThatCannotGoOnLeavesTheDirectoryToItsOwner) {
  MakeSource();
  const auto other = [](Session& s) -> Outcome<void> {
    s.env.uid = "uid-2";
    return Restore(s);
  };
  job_["model"]["normEpsilon"] = 1e-3;
  EXPECT_THAT(OnRanks(2, other), AllOf(HasSubstr("checkpoint of step 4 of job uid-1 in "),
                                       HasSubstr("it is of another model: normEpsilon is ")));
  const auto owner = checkpoint::OwnerJob(Root("source"));
  EXPECT_EQ(owner.value_or("none"), "uid-1");
  job_["model"].erase("normEpsilon");
  MakeSource({6});  // its owner goes on
  EXPECT_EQ(OnRanks(2, other), "") << "one that can go on takes it over";
  EXPECT_EQ(checkpoint::OwnerJob(Root("source")).value_or("none"), "uid-2");
}

TEST_F(RestoreTest, WeightsAloneStartAfresh) {
  MakeSource();
  // Other data, another optimizer: what does not fit is not taken.
  WriteText(dir_ / "volumes/corpus/train.txt", std::string(50'000, 'x'));
  Fork();
  EXPECT_THAT(RestoredAs(0), AllOf(HasSubstr("fingerprint"), HasSubstr("checkpoint.resumeFrom.weightsOnly")));
  Fork(0, true);
  job_["training"]["optimizer"] = {
      {"name", "SGD"}, {"learningRate", 0.1}, {"weightDecay", 0.0}, {"momentum", 0.9}, {"nesterov", false}};
  ASSERT_EQ(RestoredAs(0,
                       [](Session& s) {
                         EXPECT_EQ(s.progress.step, 0);
                         EXPECT_EQ(s.progress.cursor, 0);
                         EXPECT_EQ(s.report->status().resumed_from_step, 0);
                       }),
            "");
  const Tensors source = ReadTensors(Root("source"), 4), fork = ReadTensors(Root("fork"), 0);
  size_t weights = 0;
  for (const auto& [name, bytes] : fork) {
    if (name.starts_with("model/")) {
      ++weights;
      EXPECT_TRUE(bytes == source.at(name)) << name;
    } else {
      EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos) << name << " is of a first step";
    }
  }
  EXPECT_EQ(weights, 20u);
  job_["checkpoint"]["path"] = "another";
  job_["model"]["ffnSize"] = 96;
  EXPECT_THAT(RestoredAs(0), HasSubstr("ffnSize is 80 there and 96 in the job"));
}

TEST_F(RestoreTest, AnImportSaysOnceHowItIsTaken) {
  MakeSource();
  Result<checkpoint::Reader> reader = checkpoint::Reader::Open(Root("source") + "/" + checkpoint::StepDirectory(4));
  ASSERT_TRUE(reader) << reader.error().message;
  ASSERT_TRUE(checkpoint::ExportHuggingFace(*reader, Root("exported"), {}));
  ASSERT_TRUE(checkpoint::ImportWeights({.source = Root("exported"), .root = Root("imported")}));
  Fork();
  job_["checkpoint"]["resumeFrom"]["path"] = "imported";
  EXPECT_THAT(RestoredAs(0), AllOf(HasSubstr("start from it with checkpoint.resumeFrom and weightsOnly"),
                                   ::testing::Not(HasSubstr("or take the weights alone"))));
}

TEST_F(RestoreTest, ALearningRateThatChangesIsSaid) {
  config::Training before;
  before.optimizer.learning_rate = 0.003;
  before.schedule.warmup_steps = 5;
  before.steps = 60;
  const nlohmann::json state = {{"rate", RateState(before)}};
  EXPECT_THAT(RateChanges(state, before), IsEmpty());
  config::Training now = before;
  now.optimizer.learning_rate = 0.001;
  now.schedule.type = config::ScheduleType::kLinear;
  now.steps = 80;
  EXPECT_THAT(RateChanges(state, now), ElementsAre("training.optimizer.learningRate is 0.001 instead of 0.003",
                                                   "training.schedule.type is \"Linear\" instead of \"Cosine\"",
                                                   "training.steps is 80 instead of 60"));
  EXPECT_THAT(RateChanges(nlohmann::json::object(), now), IsEmpty()) << "states of before do not say it";
}

// Over all ranks every byte is read once, at each stage and with replicas, and none is read by everyone.
TEST_F(RestoreTest, EveryByteIsReadOnce) {
  job_["model"]["hiddenSize"] = 256;
  job_["model"]["ffnSize"] = 1024;
  MakeSource({1});
  int64_t total = 0;
  const std::string step = Root("source") + "/" + checkpoint::StepDirectory(1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(step)) {
    if (entry.is_regular_file()) total += static_cast<int64_t>(entry.file_size());
  }
  const auto manifest = static_cast<int64_t>(std::filesystem::file_size(step + "/manifest.json"));
  for (const std::string strategy : {"DDP", "ZeRO1", "ZeRO2", "FSDP", "HSDP"}) {
    for (const int world : {1, 3, 4}) {
      if (strategy == "HSDP" && world != 4) continue;
      SCOPED_TRACE(strategy + " at " + std::to_string(world));
      job_["parallelism"] = {{"strategy", strategy}};
      if (strategy == "HSDP") job_["parallelism"]["shardSize"] = 2;
      const std::string failure = OnRanks(world, [&](Session& s) -> Outcome<void> {
        if (auto restored = Restore(s); !restored) return restored;
        if (s.env.rank != 0) return {};
        const auto& read = *s.report->status().restored;
        // Small files are read by each rank; blocks at the borders of shards by two.
        const double ratio = static_cast<double>(read.bytes_read - world * manifest) / static_cast<double>(total);
        EXPECT_GE(read.bytes_read, 12 * s.engine->parameter_count());
        EXPECT_LE(ratio, 1.05);
        EXPECT_LE(static_cast<double>(read.most_bytes_read), 1.1 * static_cast<double>(total) / world + 200'000);
        std::printf("%s at %d ranks: %.4f of the checkpoint read\n", strategy.c_str(), world, ratio);
        return {};
      });
      ASSERT_EQ(failure, "");
    }
  }
}

}  // namespace
}  // namespace trainyard::loop
