// Two replicas of two shards over real processes: it trains as one group of shards does, and its checkpoint goes on as
// three shards, with the samples that an undisturbed run sees.
#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::HasSubstr;

class HsdpTest : public JobTest {
 protected:
  // "step cursor digest" of all ranks of one attempt.
  static std::vector<std::string> Samples(const Attempt& attempt, int world) {
    std::vector<std::string> samples;
    for (int rank = 0; rank < world; ++rank) {
      std::istringstream lines(Slurp(attempt.File("samples-" + std::to_string(rank) + ".jsonl")));
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line);
        samples.push_back(json["step"].dump() + " " + json["cursor"].dump() + " " + json["digest"].dump());
      }
    }
    return samples;
  }
  static double Loss(const Attempt& attempt, int64_t step) { return std::stod(Losses(attempt.Steps()).at(step)); }
};

TEST_F(HsdpTest, TwoByTwoStoppedAndContinuedByThreeShards) {
  job_["training"]["steps"] = 60;
  job_["checkpoint"]["path"] = "undisturbed";
  Attempt undisturbed = Start(1, 1, {{"TRAINYARD_SAMPLE_LOG", "1"}});
  ASSERT_EQ(undisturbed.process->Wait(), 0) << undisturbed.process->Log();

  job_["checkpoint"]["path"] = "tiny";
  job_["parallelism"] = {{"strategy", "HSDP"}, {"shardSize", 2}};
  Attempt grid = Start(4, 1, {{"TRAINYARD_SAMPLE_LOG", "1"}});
  ASSERT_TRUE(grid.AwaitStep(20)) << grid.process->Log();
  grid.process->Signal(SIGTERM);
  ASSERT_EQ(grid.process->Wait(), contract::kExitStopped) << grid.process->Log();
  EXPECT_THAT(grid.process->Log(), HasSubstr("stage 3 in groups of 2"));
  const int64_t stopped_at = grid.LastStep();
  ASSERT_LT(stopped_at, 60);

  job_["parallelism"] = {{"strategy", "FSDP"}};
  Attempt shards = Start(3, 2, {{"TRAINYARD_SAMPLE_LOG", "1"}});
  ASSERT_EQ(shards.process->Wait(), 0) << shards.process->Log();
  EXPECT_EQ(shards.StatusFile()["resumedFromStep"], stopped_at);

  std::vector<std::string> seen = Samples(grid, 4), later = Samples(shards, 3), all = Samples(undisturbed, 1);
  seen.insert(seen.end(), later.begin(), later.end());
  std::sort(seen.begin(), seen.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(seen, all);
  // Sums over ranks in another order: equal but for rounding.
  EXPECT_NEAR(Loss(grid, 20), Loss(undisturbed, 20), 1e-4);
  EXPECT_NEAR(Loss(shards, 60), Loss(undisturbed, 60), 1e-3);
}

// Without a size a group is the ranks of one node.
TEST_F(HsdpTest, GroupsAreNodesByDefaultAndHaveToDivideTheRanks) {
  job_["training"]["steps"] = 6;
  job_["parallelism"] = {{"strategy", "HSDP"}};
  const Attempt run = RunToEnd(2, 1);
  EXPECT_THAT(run.process->Log(), HasSubstr("stage 3 in groups of 2"));
  job_["job"]["uid"] = "uid-2";
  job_["parallelism"]["shardSize"] = 2;
  const Attempt refused = RunToEnd(3, 1, contract::kExitConfiguration);
  EXPECT_THAT(refused.process->Log(), HasSubstr("parallelism.shardSize: groups of 2 do not divide WORLD_SIZE 3"));
}

TEST_F(HsdpTest, OneReductionPerStepTrainsAlike) {
  job_["training"]["steps"] = 20;
  job_["job"]["uid"] = "uid-3";
  std::map<std::string, double> losses;
  for (const std::string when : {"EachMicroBatch", "LastMicroBatch"}) {
    job_["parallelism"] = {{"strategy", "FSDP"}, {"gradientReduction", when}};
    job_["checkpoint"]["path"] = when;
    const Attempt run = RunToEnd(2, 1);
    losses[when] = Loss(run, 20);
    EXPECT_GT(run.StatusFile()["memory"]["gradients"].get<int64_t>(), 0);
  }
  EXPECT_NEAR(losses["EachMicroBatch"], losses["LastMicroBatch"], 1e-4);
}

}  // namespace
}  // namespace trainyard::loop
