#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trainer/observe/append_file.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/status_file.h"
#include "trainer/observe/step_log.h"

namespace trainyard::observe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Time = std::chrono::steady_clock::time_point;

class ObserveTest : public ::testing::Test {
 protected:
  ObserveTest() {
    std::string name = std::filesystem::temp_directory_path() / "trainyard-observe-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~ObserveTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  std::vector<std::string> Lines(const std::string& file) {
    std::ifstream in(dir_ / file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::filesystem::path dir_;
};

TEST_F(ObserveTest, StepLogAppendsLineByLine) {
  for (int life = 0; life < 2; ++life) {
    auto log = StepLog::Open(dir_ / "steps.jsonl");
    ASSERT_TRUE(log);
    StepRecord record;
    record.step = life + 1;
    record.loss = 5.123456789012345;
    ASSERT_TRUE(log->Append(record));
    EXPECT_EQ(Lines("steps.jsonl").size(), static_cast<size_t>(life + 1)) << "on disk before the next step";
  }
  const auto json = nlohmann::json::parse(Lines("steps.jsonl")[1]);
  EXPECT_EQ(json["step"], 2);
  EXPECT_THAT(Lines("steps.jsonl")[0], HasSubstr("\"loss\":5.12345679,"));
}

TEST_F(ObserveTest, StepLogEndsALineThatAKillCutOff) {
  std::ofstream(dir_ / "steps.jsonl") << "{\"step\":1}\n{\"st";
  auto log = StepLog::Open(dir_ / "steps.jsonl");
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->Append({.step = 2}));
  EXPECT_THAT(Lines("steps.jsonl"), ElementsAre("{\"step\":1}", "{\"st", HasSubstr("\"step\":2")));
}

// A disk that is full for a moment, by the limit of a file's size: the kernel takes a part and refuses the rest.
TEST_F(ObserveTest, ARecordThatDoesNotFitLeavesNothingBehind) {
  auto file = AppendFile::Open(dir_ / "steps.jsonl", "step log");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Append("first\n"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{9, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status torn = file->Append("second\n"), none = file->Append("an even longer one\n");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(torn);
  ASSERT_FALSE(none);
  EXPECT_THAT(torn.error().message, AllOf(HasSubstr("cannot append to the step log"), HasSubstr("steps.jsonl")));
  ASSERT_TRUE(file->Append("third\n"));
  EXPECT_THAT(Lines("steps.jsonl"), ElementsAre("first", "third"));
}

TEST_F(ObserveTest, StepLogNamesWhatItCannotWrite) {
  auto log = StepLog::Open("/no/such/dir/steps.jsonl");
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message, HasSubstr("/no/such/dir/steps.jsonl"));
  auto full = StepLog::Open("/dev/full");
  ASSERT_TRUE(full);
  auto appended = full->Append({});
  ASSERT_FALSE(appended);
  EXPECT_THAT(appended.error().message, HasSubstr("No space left"));
}

TEST_F(ObserveTest, NineDigitsTellFloatsApart) {
  const float value = 2.7182817f;
  EXPECT_EQ(static_cast<float>(Round9(value)), value);
  EXPECT_NE(Round9(value), Round9(std::nextafter(value, 3.0f)));
}

TEST_F(ObserveTest, NumbersThatAreNotFiniteAreLeftOut) {
  StepRecord record;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.gradient_norm = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(ToJson(record));
  EXPECT_FALSE(json.contains("loss"));
  EXPECT_FALSE(json.contains("gradientNorm"));
  EXPECT_TRUE(json.contains("learningRate"));
}

TEST_F(ObserveTest, StatusHasTheFieldsOfTheContract) {
  TrainerStatus status;
  status.job_uid = "u";
  status.phase = "Training";
  status.step = 7;
  status.loss = 1.5;
  status.validation_loss = std::numeric_limits<double>::quiet_NaN();
  status.checkpoint = CheckpointStatus{5, 1000, 0.25, "2026-01-31T12:00:00Z"};
  const auto json = nlohmann::json::parse(ToJson(status));
  EXPECT_EQ(json["contract"], 1);
  EXPECT_EQ(json["loss"], 1.5);
  EXPECT_EQ(json["checkpoint"]["step"], 5);
  EXPECT_FALSE(json.contains("validationLoss"));
  EXPECT_FALSE(json.contains("resumedFromStep"));
  EXPECT_FALSE(json.contains("parameterHash"));
  EXPECT_FALSE(json.contains("memory"));
  status.memory = MemoryStatus{1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(nlohmann::json::parse(ToJson(status))["memory"].dump(),
            "{\"activationsPeak\":6,\"buffers\":5,\"gradients\":2,\"master\":3,\"optimizer\":4,\"params\":1,"
            "\"peakTotal\":7}");
}

TEST_F(ObserveTest, StatusTellsWhereTimeAndMemoryGo) {
  TrainerStatus status;
  for (const char* key : {"mfu", "validationPerplexity", "computeSeconds", "rankMemory", "lossSpike"}) {
    EXPECT_FALSE(nlohmann::json::parse(ToJson(status)).contains(key)) << key;
  }
  status.validation_loss = 2.0;
  status.mfu = 0.375;
  status.compute_seconds = 0.5;
  status.communication_seconds = 0.25;
  status.optimizer_seconds = 0.125;
  status.checkpoint_seconds = 0;
  status.rank_memory = RankMemoryStatus{900, 3, 800};
  status.slowest_rank = SlowestRankStatus{2, 0.5};
  status.loss_spike = SpikeStatus{77, 4.5, 2.25};
  auto json = nlohmann::json::parse(ToJson(status));
  EXPECT_NEAR(json["validationPerplexity"].get<double>(), 7.38905609893065, 1e-8);
  EXPECT_EQ(json["mfu"], 0.375);
  EXPECT_EQ(json["computeSeconds"], 0.5);
  EXPECT_EQ(json["communicationSeconds"], 0.25);
  EXPECT_EQ(json["optimizerSeconds"], 0.125);
  EXPECT_EQ(json["checkpointSeconds"], 0);
  EXPECT_EQ(json["rankMemory"].dump(), "{\"least\":800,\"most\":900,\"mostRank\":3}");
  EXPECT_EQ(json["slowestRank"].dump(), "{\"excess\":0.5,\"rank\":2}");
  EXPECT_EQ(json["lossSpike"].dump(), "{\"loss\":4.5,\"median\":2.25,\"step\":77}");
  status.validation_loss = 1000;  // whose exponential is no number
  EXPECT_FALSE(nlohmann::json::parse(ToJson(status)).contains("validationPerplexity"));
}

TEST_F(ObserveTest, StepLogHasTheFiguresOfTheRanksNowAndThen) {
  StepRecord record;
  EXPECT_FALSE(nlohmann::json::parse(ToJson(record)).contains("ranks"));
  EXPECT_FALSE(nlohmann::json::parse(ToJson(record)).contains("mfu"));
  record.mfu = 0.25;
  record.ranks = RankColumns{{10, 20}, {30, 40}, {0.5, 0.25}, {1, 2}, {3, 4}};
  const auto json = nlohmann::json::parse(ToJson(record));
  EXPECT_EQ(json["mfu"], 0.25);
  EXPECT_EQ(json["ranks"].dump(),
            "{\"communicationSeconds\":[3.0,4.0],\"computeSeconds\":[1.0,2.0],\"dataSeconds\":[0.5,0.25],"
            "\"peakBytes\":[10,20],\"residentBytes\":[30,40]}");
}

TEST_F(ObserveTest, StatusIsWrittenOnPhaseChangesAndAtIntervals) {
  const std::string path = dir_ / "status.json";
  StatusFile file(path, std::chrono::milliseconds(100));
  const auto step = [&] { return nlohmann::json::parse(Lines("status.json").at(0))["step"].get<int>(); };
  const Time start;
  TrainerStatus status;
  status.phase = "Training";
  status.step = 1;
  ASSERT_TRUE(file.Update(status, start));
  status.step = 2;
  ASSERT_TRUE(file.Update(status, start + std::chrono::milliseconds(99)));
  EXPECT_EQ(step(), 1);
  ASSERT_TRUE(file.Update(status, start + std::chrono::milliseconds(100)));
  EXPECT_EQ(step(), 2);
  status.step = 3;
  status.phase = "Checkpointing";
  ASSERT_TRUE(file.Update(status, start + std::chrono::milliseconds(101)));
  EXPECT_EQ(step(), 3);
  StatusFile nowhere("/no/such/dir/status.json", std::chrono::milliseconds(0));
  EXPECT_FALSE(nowhere.Write(status, start));
}

TEST(PhaseClock, BooksEveryMomentOnce) {
  const Time start;
  const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  PhaseClock clock(start);
  clock.Switch(Activity::kData, at(0));
  clock.Switch(Activity::kCompute, at(20));
  clock.Switch(Activity::kData, at(100));
  clock.Switch(Activity::kOther, at(105));
  EXPECT_NEAR(clock.Take(Activity::kData), 0.025, 1e-9);
  EXPECT_NEAR(clock.Take(Activity::kCompute), 0.080, 1e-9);
  EXPECT_EQ(clock.Take(Activity::kCompute), 0.0);
}

}  // namespace
}  // namespace trainyard::observe
