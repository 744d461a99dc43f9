// The text that a job makes of a prompt at each evaluation.
#include "tests/trainer/loop/job_fixture.h"
#include "trainer/checkpoint/format.h"
#include "trainer/generate/request.h"

namespace trainyard::loop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TextSampleTest : public JobTest {
 protected:
  TextSampleTest() {
    job_["training"]["evaluation"]["sample"] = {{"prompt", kPrompt}, {"tokens", 40}, {"temperature", 1.0}};
  }

  static std::vector<nlohmann::json> Texts(const Attempt& run) {
    std::vector<nlohmann::json> texts;
    std::istringstream lines(Slurp(run.File(std::string(contract::kTextLogFile))));
    for (std::string line; std::getline(lines, line);) texts.push_back(nlohmann::json::parse(line));
    return texts;
  }
  // What trainyard-generate makes of the prompt with the checkpoint of the last step.
  std::string OfCheckpoint() const {
    generate::Request request;
    request.checkpoint = CheckpointRoot() + "/" + checkpoint::StepDirectory(60);
    request.prompt = kPrompt, request.tokens = 40, request.json = true, request.threads = 1;
    request.temperature = 1, request.seed = 1234;  // that of the job
    std::filesystem::remove(dir_ / "generate.log");
    Subprocess program({TRAINYARD_BIN_DIR "/trainyard-generate", generate::ToJson(request)}, {}, dir_ / "generate.log");
    EXPECT_EQ(program.Wait(), 0) << program.Log();
    return nlohmann::json::parse(program.Log()).at("text");
  }

  // Prompt and text together are more than a training sequence of 32.
  static constexpr const char* kPrompt = "You may copy and ";
};

// Sharded at stage 3, so that every token is a gather of every unit; and whole.
TEST_F(TextSampleTest, IsWhatTheCheckpointGoesOnWithAtEveryStage) {
  for (const auto& [strategy, world] : {std::pair{"FSDP", 2}, std::pair{"DDP", 2}, std::pair{"FSDP", 1}}) {
    SCOPED_TRACE(std::string(strategy) + " at " + std::to_string(world) + " ranks");
    std::filesystem::remove_all(CheckpointRoot());
    job_["parallelism"]["strategy"] = strategy;
    const Attempt run = RunToEnd(world, 1);
    const auto texts = Texts(run);
    std::vector<int64_t> steps;
    for (const auto& text : texts) {
      steps.push_back(text["step"]);
      EXPECT_EQ(text["prompt"], kPrompt);
      EXPECT_FALSE(text["text"].get<std::string>().empty());
    }
    EXPECT_THAT(steps, ElementsAre(0, 25, 50, 60));
    ASSERT_FALSE(texts.empty());
    EXPECT_EQ(texts.back()["text"], OfCheckpoint());
    EXPECT_NE(texts.back()["text"], texts.front()["text"]);
    EXPECT_THAT(Slurp(run.File("log")), HasSubstr("sample after step 60: \"You may copy and \" goes on "));
  }
}

// The losses of a job do not depend on whether it says something in between.
TEST_F(TextSampleTest, LeavesTrainingAsItIs) {
  const Attempt with = Undisturbed(1);
  EXPECT_EQ(Texts(with).size(), 4U);
  job_["training"]["evaluation"].erase("sample");
  std::filesystem::remove_all(dir_ / "volumes/checkpoints/undisturbed");
  const Attempt without = Undisturbed(1);
  EXPECT_FALSE(std::filesystem::exists(without.File(std::string(contract::kTextLogFile))));
  EXPECT_EQ(Losses(with.Steps()), Losses(without.Steps()));
  EXPECT_EQ(with.StatusFile()["parameterHash"], without.StatusFile()["parameterHash"]);
}

TEST_F(TextSampleTest, APromptThatIsTooLongEndsTheJobAtItsStart) {
  job_["training"]["evaluation"]["sample"]["prompt"] = std::string(65, 'x');
  const Attempt run = RunToEnd(1, 1, contract::kExitConfiguration);
  EXPECT_THAT(run.StatusFile()["message"].get<std::string>(),
              StartsWith("training.evaluation.sample: the prompt has 65 tokens, the model 64 positions"));
}

}  // namespace
}  // namespace trainyard::loop
