// What a block keeps for backward changes the memory of a job and nothing else; and GPT-2 is trained like Llama.
#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

class ActivationTest : public JobTest {
 protected:
  void BeGpt2() {
    job_["model"]["family"] = "GPT2";
    job_["model"].erase("ropeTheta");
    job_["model"].erase("kvHeads");
  }
};

TEST_F(ActivationTest, CheckpointingTakesLessMemoryAndGivesTheSameBits) {
  job_["training"]["steps"] = 6;
  job_["training"]["evaluation"]["everySteps"] = 0;
  job_.erase("checkpoint");
  for (const bool gpt2 : {false, true}) {
    if (gpt2) BeGpt2();
    std::map<int64_t, std::string> losses;
    std::string hash;
    int64_t peak = 0;
    for (const char* mode : {"None", "Selective", "Full"}) {
      job_["training"]["activationCheckpointing"] = mode;
      const Attempt run = RunToEnd(2, 1);
      const auto status = run.StatusFile();
      const auto activations = status["memory"].value("activationsPeak", int64_t{0});
      if (losses.empty()) {
        losses = Losses(run.Steps());
        hash = status["parameterHash"];
      } else {
        EXPECT_LT(activations, peak) << mode;
      }
      EXPECT_EQ(losses.size(), 6u);
      EXPECT_EQ(Losses(run.Steps()), losses) << mode;
      EXPECT_EQ(status["parameterHash"], hash) << mode;
      peak = activations;
    }
  }
}

TEST_F(ActivationTest, AGpt2LearnsStopsAndGoesOnAtAnotherSizeAndStage) {
  BeGpt2();
  job_["training"]["activationCheckpointing"] = "Selective";
  job_["checkpoint"]["everySteps"] = 30;
  const auto reference = Undisturbed(2).StatusFile();
  EXPECT_LT(reference["validationLoss"], reference["initialValidationLoss"]);
  job_["training"]["steps"] = 30;
  job_["training"]["schedule"]["type"] = "Constant";
  RunToEnd(2, 1);
  job_["training"]["steps"] = 60;
  job_["parallelism"]["strategy"] = "ZeRO2";
  job_["training"]["activationCheckpointing"] = "Full";
  const auto resumed = RunToEnd(3, 2).StatusFile();
  EXPECT_EQ(resumed["resumedFromStep"], 30);
  EXPECT_NEAR(resumed["validationLoss"].get<double>(), reference["validationLoss"].get<double>(), 0.3);
}

}  // namespace
}  // namespace trainyard::loop
