// Over two resizes and a kill -9 no sample is repeated and none is skipped: in the history that survives, every place
// of the global order is trained on exactly once, with the tokens that an undisturbed run saw there.
#include <optional>

#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

constexpr int64_t kSteps = 120;
constexpr int64_t kGlobalBatch = 8;

class SampleTest : public JobTest, public ::testing::WithParamInterface<bool> {
 protected:
  // step -> cursor -> digests, of all ranks of one attempt, as the ranks logged them while they read.
  using Samples = std::map<int64_t, std::multimap<int64_t, std::string>>;
  static Samples Read(const Attempt& attempt, int world) {
    Samples samples;
    for (int rank = 0; rank < world; ++rank) {
      std::istringstream lines(Slurp(attempt.File("samples-" + std::to_string(rank) + ".jsonl")));
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object()) continue;  // cut off by the kill
        samples[json["step"].get<int64_t>()].emplace(json["cursor"].get<int64_t>(), json["digest"].get<std::string>());
      }
    }
    return samples;
  }
  Attempt StartLogged(int world, int attempt) { return Start(world, attempt, {{"TRAINYARD_SAMPLE_LOG", "1"}}); }
};

// Of one source, and of a mixture: both are functions of the cursor alone.
TEST_P(SampleTest, EveryPlaceIsTrainedOnOnceOverTwoResizesAndAKill_Bug2_4_5_6) {
  if (GetParam()) {
    std::filesystem::copy_file(dir_ / "volumes/corpus/valid.txt", dir_ / "volumes/corpus/more.txt");
    job_["data"]["train"] = {{{"volume", "corpus"}, {"path", "train.txt"}, {"weight", 0.6}},
                             {{"volume", "corpus"}, {"path", "more.txt"}, {"weight", 0.4}}};
    job_["data"]["documentSeparator"] = '\n';
  }
  job_["training"]["steps"] = kSteps;
  job_["checkpoint"]["everySteps"] = 15;
  job_["checkpoint"]["path"] = "undisturbed";
  Attempt undisturbed = StartLogged(1, 1);
  ASSERT_EQ(undisturbed.process->Wait(), 0) << undisturbed.process->Log();
  const Samples reference = Read(undisturbed, 1);
  ASSERT_EQ(reference.size(), static_cast<size_t>(kSteps));

  job_["checkpoint"]["path"] = "tiny";
  struct Life {
    int world;
    int64_t until;  // interrupted once this step is done; 0: runs to the end
    int signal;
  };
  Samples surviving;
  int attempt = 0;
  int64_t redone = 0;
  for (const Life& life : {Life{2, 20, SIGTERM}, Life{3, 50, SIGKILL}, Life{3, 70, SIGTERM}, Life{1, 0, 0}}) {
    Attempt run = StartLogged(life.world, ++attempt);
    if (life.until > 0) {
      ASSERT_TRUE(run.AwaitStep(life.until)) << run.process->Log();
      if (life.signal == SIGKILL) {
        const pid_t pid = run.PidOf(life.world - 1);
        ASSERT_GT(pid, 0) << run.process->Log();
        kill(pid, SIGKILL);
      } else {
        run.process->Signal(life.signal);
      }
    }
    const int expected = life.signal == SIGKILL ? 128 + SIGKILL : life.until > 0 ? contract::kExitStopped : 0;
    ASSERT_EQ(run.process->Wait(), expected) << run.process->Log();
    const auto resumed = run.StatusFile().value("resumedFromStep", int64_t{0});
    // What came after the checkpoint is lost, and done again by this attempt.
    redone += static_cast<int64_t>(std::distance(surviving.upper_bound(resumed), surviving.end()));
    surviving.erase(surviving.upper_bound(resumed), surviving.end());
    for (const auto& [step, samples] : Read(run, life.world)) {
      ASSERT_GT(step, resumed);
      surviving[step] = samples;
    }
  }
  EXPECT_GT(redone, 0) << "the kill was meant to lose steps";

  ASSERT_EQ(surviving.size(), static_cast<size_t>(kSteps));
  int64_t next = 0;
  for (const auto& [step, samples] : surviving) {
    ASSERT_EQ(samples.size(), static_cast<size_t>(kGlobalBatch)) << "step " << step;
    for (const auto& [cursor, digest] : samples) ASSERT_EQ(cursor, next++) << "step " << step;
    EXPECT_EQ(samples, reference.at(step)) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Data, SampleTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Mixture" : "OneSource"; });

}  // namespace
}  // namespace trainyard::loop
