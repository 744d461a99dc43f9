// The main job end to end: resized, killed and stopped in every way a user would meet, and always the same result.
#include "tests/e2e/run_fixture.h"

namespace trainyard::e2e {
namespace {

using std::chrono::seconds;
using ::testing::Gt;
using ::testing::SizeIs;

class MainJob : public RunTest {};

TEST_F(MainJob, IsResizedUpAndDownWithoutLosingAStep) {
  JobText job;
  job.steps = 150;
  auto run = StartRun(job);
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 30 || !run->Running(); }, seconds(120))) << run->Log();
  Outcome up = Call({"resize", "tiny", "--gpus", "4", "--state-dir", dir_.path(), "--wait"}, seconds(120));
  ASSERT_EQ(up.code, 0) << up.text << run->Log();
  const int64_t at = LoggedStep();
  ASSERT_TRUE(Await([&] { return LoggedStep() >= at + 20 || !run->Running(); }, seconds(120))) << run->Log();
  Outcome down = Call({"resize", "tiny", "--gpus", "1", "--state-dir", dir_.path(), "--wait"}, seconds(120));
  ASSERT_EQ(down.code, 0) << down.text << run->Log();
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();

  const auto resizes = Events("resize");
  ASSERT_THAT(resizes, SizeIs(2)) << run->Log();
  EXPECT_EQ(resizes[0]["from"], 2);
  EXPECT_EQ(resizes[0]["to"], 4);
  EXPECT_EQ(resizes[1]["from"], 4);
  EXPECT_EQ(resizes[1]["to"], 1);
  const auto status = FinalStatus();
  EXPECT_EQ(status["phase"], "Succeeded");
  EXPECT_EQ(status["progress"]["step"], 150);
  EXPECT_EQ(status["attempt"], 3);
  // Intended stops cost nothing.
  EXPECT_EQ(status["restarts"].value("user", 0), 0);
  EXPECT_EQ(status["restarts"].value("infrastructure", 0), 0);
  // The attempts cover every step once: each begins where the one before it saved.
  std::vector<int64_t> steps;
  for (const auto& pod : std::filesystem::directory_iterator(dir_ / "pods")) {
    std::istringstream lines(Slurp(pod.path() / "run/steps.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      steps.push_back(nlohmann::json::parse(line)["step"].get<int64_t>());
    }
  }
  std::sort(steps.begin(), steps.end());
  ASSERT_THAT(steps, SizeIs(150));
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
  EXPECT_LT(status["progress"]["validationLoss"].get<double>(),
            status["progress"]["initialValidationLoss"].get<double>() - 1.0);
}

TEST_F(MainJob, EndsWithTheSameParametersWhenARankIsKilled) {
  const JobText job;
  const std::string undisturbed = HashOf(job);
  ASSERT_EQ(undisturbed.size(), 16u);
  Clean();
  auto run = StartRun(job);
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 50 || !run->Running(); }, seconds(120))) << run->Log();
  const auto victims = Trainers("1");
  ASSERT_THAT(victims, SizeIs(1)) << run->Log();
  kill(victims[0], SIGKILL);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  const auto status = FinalStatus();
  EXPECT_EQ(status["phase"], "Succeeded");
  EXPECT_EQ(status["restarts"]["infrastructure"], 1);
  EXPECT_EQ(status["progress"]["parameterHash"], undisturbed);
}

TEST_F(MainJob, EndsWithTheSameParametersWhenARankIsKilledInTheMiddleOfASave) {
  JobText job;
  job.every_steps = 5;  // many saves to hit
  const std::string undisturbed = HashOf(job);
  Clean();
  auto run = StartRun(job);
  const std::string staging = dir_ / "volumes/checkpoints/tiny/.staging";
  const auto saving = [&] {
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator it(staging, error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().extension() == ".safetensors") return true;
    }
    return false;
  };
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 20 || !run->Running(); }, seconds(120))) << run->Log();
  ASSERT_TRUE(Await([&] { return saving() || !run->Running(); }, seconds(120))) << run->Log();
  const auto victims = Trainers("0");
  ASSERT_THAT(victims, SizeIs(1)) << run->Log();
  kill(victims[0], SIGKILL);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  EXPECT_EQ(FinalStatus()["progress"]["parameterHash"], undisturbed);
  Outcome verified = Call({"checkpoints", "verify", dir_ / "volumes/checkpoints/tiny"});
  EXPECT_EQ(verified.code, 0) << verified.text;
}

TEST_F(MainJob, GoesOnAfterTheWholeRunWasKilled) {
  const JobText job;
  const std::string undisturbed = HashOf(job);
  Clean();
  auto run = StartRun(job);
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 50 || !run->Running(); }, seconds(120))) << run->Log();
  run->Signal(SIGKILL);
  EXPECT_EQ(run->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Await([&] { return Trainers().empty(); })) << "trainers outlived the run";
  run = StartRun(job);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  const auto status = FinalStatus();
  EXPECT_THAT(status["progress"]["resumedFromStep"].get<int64_t>(), Gt(0));
  EXPECT_EQ(status["progress"]["parameterHash"], undisturbed);
}

TEST_F(MainJob, StopsWithACheckpointOnCtrlCAndGoesOnLater) {
  const JobText job;
  const std::string undisturbed = HashOf(job);
  Clean();
  auto run = StartRun(job);
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 33 || !run->Running(); }, seconds(120))) << run->Log();
  run->Signal(SIGINT);
  ASSERT_EQ(run->Wait(), 130) << run->Log();
  const int64_t stopped_at = LoggedStep();
  EXPECT_TRUE(Trainers().empty());
  run = StartRun(job);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  const auto status = FinalStatus();
  EXPECT_EQ(status["progress"]["resumedFromStep"], stopped_at);
  EXPECT_EQ(status["progress"]["parameterHash"], undisturbed);
}

TEST_F(MainJob, SizesItselfWhenNoCountIsGiven) {
  JobText job;
  job.gpus = 0;
  job.steps = 5;
  job.strategy = "Auto";
  auto run = StartRun(job);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  const auto status = FinalStatus();
  EXPECT_EQ(status["plan"]["gpus"], 1);  // a model this small fits one, and one is the simplest
  EXPECT_EQ(status["plan"]["strategy"], "DDP");
}

}  // namespace
}  // namespace trainyard::e2e
