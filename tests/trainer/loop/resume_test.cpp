// A job that is stopped and goes on at the same world size is the job that was never stopped: same losses to the last
// of nine digits, same parameters to the last bit.
#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ResumeTest : public JobTest {};

TEST_F(ResumeTest, StoppedAndContinuedEqualsUndisturbed) {
  job_["training"]["steps"] = 100;
  job_["checkpoint"]["everySteps"] = 30;
  for (const std::string strategy : {"DDP", "FSDP"}) {
    job_["parallelism"]["strategy"] = strategy;
    job_["checkpoint"]["path"] = "tiny-" + strategy;
    const Attempt undisturbed = Undisturbed(2);
    const auto reference = undisturbed.StatusFile();
    ASSERT_EQ(reference["phase"], "Succeeded");
    const auto memory = reference.value("memory", std::map<std::string, int64_t>());
    ASSERT_EQ(memory.size(), 7u) << "what the next plan of the job is corrected with";
    EXPECT_GT(memory.at("activationsPeak"), 0);
    EXPECT_GE(memory.at("peakTotal"), memory.at("master") + memory.at("optimizer") + memory.at("gradients"));

    Attempt first = Start(2, 1);
    ASSERT_TRUE(first.AwaitStep(12)) << first.process->Log();
    first.process->Signal(SIGTERM);
    ASSERT_EQ(first.process->Wait(), contract::kExitStopped) << first.process->Log();
    EXPECT_EQ(first.StatusFile()["phase"], "Stopped");
    EXPECT_EQ(first.Termination()["class"], "None");
    const int64_t stopped_at = first.LastStep();
    EXPECT_EQ(first.StatusFile()["checkpoint"]["step"], stopped_at);
    ASSERT_LT(stopped_at, 100);

    const Attempt second = RunToEnd(2, 2);
    EXPECT_EQ(second.StatusFile()["resumedFromStep"], stopped_at);
    EXPECT_EQ(second.Steps().front()["step"], stopped_at + 1);
    auto losses = Losses(first.Steps());
    losses.merge(Losses(second.Steps()));
    EXPECT_EQ(losses.size(), 100u);
    EXPECT_EQ(losses, Losses(undisturbed.Steps()));
    EXPECT_EQ(second.StatusFile()["parameterHash"], reference["parameterHash"]);
    EXPECT_EQ(first.StatusFile().value("stateHash", "").size(), 16u);
    EXPECT_EQ(second.StatusFile()["loadedStateHash"], first.StatusFile()["stateHash"]);
    EXPECT_EQ(second.StatusFile()["stateHash"], reference["stateHash"]);
    EXPECT_NE(second.StatusFile()["stateHash"], second.StatusFile()["loadedStateHash"]);
    EXPECT_EQ(second.StatusFile()["validationLoss"], reference["validationLoss"]);
    EXPECT_EQ(second.StatusFile()["initialValidationLoss"], reference["initialValidationLoss"]);
    EXPECT_LT(reference["validationLoss"], reference["initialValidationLoss"]) << "it learns";
    std::filesystem::remove_all(dir_ / "volumes/checkpoints/undisturbed");
  }
}

// They are made for their step, whatever the cadence is, and stay beside the newest.
TEST_F(ResumeTest, CheckpointsOfMultiplesOfAStepAreMadeAndStay) {
  job_["training"]["steps"] = 60;
  job_["checkpoint"]["everySteps"] = 0;
  job_["checkpoint"]["everySeconds"] = 3600;
  job_["checkpoint"]["keepEverySteps"] = 30;
  job_["checkpoint"]["keepLast"] = 1;
  RunToEnd(1, 1);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "volumes/checkpoints/tiny")) {
    if (entry.path().filename() != ".staging") names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-00000030", "step-00000060"));
}

// Every optimizer and schedule, stopped in warm-up, at its peak or in its decay: the same losses, learning rates and
// gradient norms as without the stop, step by step. Row 51 of the table of other engines' bugs: neither schedule nor
// weight decay is stale after a resume.
TEST_F(ResumeTest, EveryOptimizerAndScheduleGoesOnAsIfNothingHadHappened_Bug50_51) {
  using nlohmann::json;
  const json adamw = job_["training"]["optimizer"];
  const auto sgd = [](double momentum, bool nesterov) -> json {
    return {
        {"name", "SGD"}, {"learningRate", 0.1}, {"weightDecay", 0.001}, {"momentum", momentum}, {"nesterov", nesterov}};
  };
  const auto schedule = [](const char* type) -> json {
    return {{"type", type}, {"warmupSteps", 8}, {"minLearningRateRatio", 0.1}};
  };
  json stable = schedule("WarmupStableDecay");
  stable["decaySteps"] = 20;
  stable["decayShape"] = "Sqrt";
  struct Case {
    const char* name;
    json optimizer, schedule;
    int64_t stop_after;
  };
  const Case cases[] = {{"sgd-constant-warm-up", sgd(0, false), schedule("Constant"), 3},
                        {"adamw-linear", adamw, schedule("Linear"), 15},
                        {"sgd-stable-decay", sgd(0.9, true), stable, 22}};
  job_["training"]["steps"] = 40;
  job_["training"]["evaluation"]["everySteps"] = 0;
  json checkpoint = job_["checkpoint"];
  checkpoint["keepLast"] = 0;  // all
  const auto figures = [](const std::vector<json>& steps) {
    std::map<int64_t, std::vector<double>> all;
    for (const json& s : steps) all[s["step"]] = {s["loss"], s["learningRate"], s["gradientNorm"]};
    return all;
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    job_["training"]["optimizer"] = c.optimizer;
    job_["training"]["schedule"] = c.schedule;
    job_["job"]["uid"] = "uid-1";
    job_["checkpoint"] = checkpoint;
    job_["checkpoint"]["path"] = c.name;
    job_["checkpoint"]["everySteps"] = c.stop_after;
    const Attempt undisturbed = RunToEnd(2, 1);
    auto reference = figures(undisturbed.Steps());
    ASSERT_EQ(reference.size(), 40u);
    EXPECT_LT(reference.at(40)[0], reference.at(1)[0]) << "it learns";

    // Another job goes on from the checkpoint in the middle.
    job_["job"]["uid"] = "uid-2";
    job_["checkpoint"]["resume"] = "Step";
    job_["checkpoint"]["resumeStep"] = c.stop_after;
    const Attempt resumed = RunToEnd(2, 1);
    EXPECT_EQ(resumed.StatusFile()["resumedFromStep"], c.stop_after);
    reference.erase(reference.begin(), reference.upper_bound(c.stop_after));
    EXPECT_EQ(figures(resumed.Steps()), reference);
    EXPECT_EQ(resumed.StatusFile()["parameterHash"], undisturbed.StatusFile()["parameterHash"]);
  }
}

TEST_F(ResumeTest, RestartInPlaceEqualsUndisturbed) {
  job_["training"]["steps"] = 100;
  job_["checkpoint"]["everySteps"] = 30;
  const Attempt undisturbed = Undisturbed(2);
  Attempt run = Start(2, 1);
  ASSERT_TRUE(run.AwaitStep(12)) << run.process->Log();
  EXPECT_THAT(HttpAsk(run.Port(), "POST", "/restart", "secret"), StartsWith("HTTP/1.1 202"));
  ASSERT_EQ(run.process->Wait(), 0) << run.process->Log();
  EXPECT_EQ(run.StatusFile()["round"], 1);
  EXPECT_EQ(Losses(run.Steps()), Losses(undisturbed.Steps()));
  EXPECT_EQ(run.StatusFile()["parameterHash"], undisturbed.StatusFile()["parameterHash"]);
}

TEST_F(ResumeTest, AFinishedJobHasNothingToDo) {
  job_["training"]["steps"] = 10;
  const Attempt first = RunToEnd(1, 1);
  const Attempt again = RunToEnd(2, 2);
  EXPECT_TRUE(again.Steps().empty());
  EXPECT_EQ(again.StatusFile()["phase"], "Succeeded");
  EXPECT_EQ(again.StatusFile()["checkpoint"]["step"], 10);
  EXPECT_EQ(again.StatusFile()["parameterHash"], first.StatusFile()["parameterHash"]);
  EXPECT_EQ(again.StatusFile()["validationLoss"], first.StatusFile()["validationLoss"]);
}

TEST_F(ResumeTest, NeverAndStepSpeakAboutTheFirstAttemptOnly) {
  job_["training"]["steps"] = 30;
  job_["checkpoint"]["everySteps"] = 20;
  const Attempt first = RunToEnd(1, 1);
  job_["job"]["uid"] = "uid-2";
  job_["checkpoint"]["resume"] = "Step";
  job_["checkpoint"]["resumeStep"] = 20;
  Attempt step = RunToEnd(1, 1);
  EXPECT_EQ(step.StatusFile()["resumedFromStep"], 20);
  EXPECT_EQ(step.StatusFile()["parameterHash"], first.StatusFile()["parameterHash"]);
  EXPECT_TRUE(RunToEnd(1, 2).Steps().empty()) << "the second attempt goes on from its own last step";
  job_["job"]["uid"] = "uid-3";
  job_["checkpoint"]["resume"] = "Never";
  EXPECT_EQ(RunToEnd(1, 1).Steps().size(), 30u);
  EXPECT_TRUE(RunToEnd(1, 2).Steps().empty());
}

}  // namespace
}  // namespace trainyard::loop
