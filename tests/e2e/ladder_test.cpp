// `trainyard run --ladder`: the same job at several sizes, on real processes.
#include "tests/e2e/run_fixture.h"

namespace trainyard::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LadderTest : public RunTest {
 protected:
  Outcome Ladder(const std::string& sizes, std::vector<std::string> more = {}) {
    WriteText(dir_ / "job.yaml", JobText{.steps = 500}.Yaml());
    std::vector<std::string> arguments = {"run", dir_ / "job.yaml", "--ladder", sizes, "--ladder-steps",
                                          "30",  "--state-dir",     dir_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Call(arguments, std::chrono::seconds(120));
  }
};

TEST_F(LadderTest, ComparesSizes) {
  const Outcome run = Ladder("1,2", {"-o", "json"});
  ASSERT_EQ(run.code, 0) << run.text;
  std::map<std::string, std::vector<nlohmann::json>> events;
  std::istringstream lines(run.text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object()) events[json["event"]].push_back(json);
  }
  ASSERT_EQ(events["rung"].size(), 2U) << run.text;
  for (const auto& rung : events["rung"]) {
    EXPECT_EQ(rung["steps"], 20) << "the first ten are warm-up";
    const double parts = rung["dataSeconds"].get<double>() + rung["computeSeconds"].get<double>() +
                         rung["communicationSeconds"].get<double>() + rung["imbalanceSeconds"].get<double>() +
                         rung["optimizerSeconds"].get<double>() + rung["otherSeconds"].get<double>();
    EXPECT_NEAR(parts, rung["stepSeconds"].get<double>(), 0.1 * rung["stepSeconds"].get<double>()) << rung;
  }
  EXPECT_EQ(events["rung"][0]["gpus"], 1);
  EXPECT_EQ(events["rung"][0]["communicationSeconds"], 0);
  EXPECT_EQ(events["rung"][1]["gpus"], 2);
  ASSERT_EQ(events["scaling"].size(), 1U);
  ASSERT_EQ(events["losses"].size(), 1U);
  EXPECT_EQ(events["losses"][0]["steps"], 30);
  EXPECT_EQ(events["losses"][0]["partsAtStep"], 0) << run.text;
  // No checkpoint of a ladder lies where the job's own would be sought.
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "volumes/checkpoints"));
}

TEST_F(LadderTest, PrintsATable) {
  const Outcome run = Ladder("2,1");
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("speed-up"), HasSubstr("1 GPU: losses equal those of 2")));
}

TEST_F(LadderTest, RefusesSizesThatCannotBe) {
  Outcome run = Ladder("1,9");
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("9 GPUs: spec."), HasSubstr("globalBatchSize")));
  run = Ladder("1,0");
  EXPECT_EQ(run.code, 2) << run.text;
}

}  // namespace
}  // namespace trainyard::e2e
