// What a job tells while it trains: where the time of its steps goes, memory of the ranks, TensorBoard events, traces,
// held-out perplexity. On real processes over Gloo.
#include <cmath>

#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

class WatchTest : public JobTest {
 protected:
  static int Count(const std::string& text, const std::string& what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  }
};

TEST_F(WatchTest, StepsAreSplitIntoWhatTheirTimeWentInto) {
  job_["observe"] = {{"peakFlops", 1e10}};
  job_["training"]["steps"] = 25;
  Attempt run = RunToEnd(2, 1);
  const auto steps = run.Steps();
  ASSERT_EQ(steps.size(), 25U);
  double communication = 0;
  for (const auto& step : steps) {
    const double parts = step["dataSeconds"].get<double>() + step["computeSeconds"].get<double>() +
                         step["communicationSeconds"].get<double>() + step["optimizerSeconds"].get<double>();
    const double whole = step["stepSeconds"];
    EXPECT_THAT(parts, AllOf(Ge(0.9 * whole), Le(whole * 1.001))) << step;
    EXPECT_GT(step["computeSeconds"].get<double>(), 0) << step;
    EXPECT_NEAR(step["tokensPerSecond"].get<double>() * whole, 8 * 32, 1e-3);
    // 6 P + 12 L s w operations for each token; P of this tied model: 256 * 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 16 *
    // 32
    // + 3 * 80 * 32) + 32.
    const double flops = 6.0 * (8192 + 2 * (64 + 2048 + 1024 + 7680) + 32) + 12.0 * 2 * 32 * 32;
    EXPECT_NEAR(step["mfu"].get<double>(), flops * step["tokensPerSecond"].get<double>() / (2 * 1e10), 1e-6);
    communication += step["communicationSeconds"].get<double>();
    // The ranks' own figures come every ten steps and with the last one.
    EXPECT_EQ(step.contains("ranks"), step["step"] == 10 || step["step"] == 20 || step["step"] == 25) << step;
  }
  EXPECT_GT(communication, 0);
  const auto& ranks = steps.back()["ranks"];
  for (const char* column : {"peakBytes", "residentBytes", "dataSeconds", "computeSeconds", "communicationSeconds"}) {
    EXPECT_EQ(ranks[column].size(), 2U) << column;
  }
  EXPECT_GT(steps[10]["checkpointSeconds"].get<double>(), 0) << "the save after step 10";
  EXPECT_EQ(steps[8]["checkpointSeconds"].get<double>(), 0);
  const auto status = run.StatusFile();
  const auto compute = ranks["computeSeconds"].get<std::vector<double>>();
  const int slowest = compute[1] > compute[0] ? 1 : 0;
  EXPECT_EQ(status["slowestRank"]["rank"], slowest);
  EXPECT_NEAR(status["slowestRank"]["excess"].get<double>(),
              compute[static_cast<size_t>(slowest)] / ((compute[0] + compute[1]) / 2) - 1, 1e-6);
  for (const char* part : {"dataSeconds", "computeSeconds", "communicationSeconds", "optimizerSeconds",
                           "checkpointSeconds", "mfu", "tokensPerSecond"}) {
    EXPECT_EQ(status[part], steps.back()[part]) << part;
  }
}

TEST_F(WatchTest, OneRankWaitsForNobody) {
  job_["training"]["steps"] = 5;
  for (const auto& step : RunToEnd(1, 1).Steps()) {
    EXPECT_EQ(step["communicationSeconds"].get<double>(), 0) << step;
    EXPECT_FALSE(step.contains("mfu")) << "nobody said what this machine can do";
  }
}

// Nothing heavy happens on rank 0 alone: through saves, evaluations and logging its peak stays with the others'.
TEST_F(WatchTest, RankZeroHoldsNoMoreThanTheOthers) {
  job_["model"]["hiddenSize"] = 384;
  job_["model"]["ffnSize"] = 1056;
  job_["model"]["layers"] = 6;
  job_["training"]["steps"] = 12;
  job_["training"]["evaluation"] = {{"everySteps", 4}, {"batches", 4}};
  job_["checkpoint"]["everySteps"] = 4;
  job_["observe"] = {{"tensorboard", {{"volume", "checkpoints"}, {"path", "events"}}}};
  job_["training"]["profile"] = {{"fromStep", 2}, {"steps", 2}};
  // What malloc keeps for later is as large as what is looked for: here it gives back at once what is freed.
  Attempt run = Start(2, 1, {{"MALLOC_MMAP_THRESHOLD_", "131072"}, {"MALLOC_ARENA_MAX", "1"}});
  ASSERT_EQ(run.process->Wait(), contract::kExitSucceeded) << run.process->Log();
  const auto ranks = run.Steps().back()["ranks"];  // after two evaluations and two saves
  for (const char* column : {"peakBytes", "residentBytes"}) {
    const auto bytes = ranks[column].get<std::vector<double>>();
    ASSERT_EQ(bytes.size(), 2U);
    EXPECT_LE(bytes[0], 1.02 * bytes[1]) << column << " " << ranks;
  }
  const auto status = run.StatusFile();
  EXPECT_EQ(status["rankMemory"]["most"], *std::max_element(ranks["peakBytes"].begin(), ranks["peakBytes"].end()));
  EXPECT_EQ(status["rankMemory"]["least"], *std::min_element(ranks["peakBytes"].begin(), ranks["peakBytes"].end()));
}

TEST_F(WatchTest, EvaluatesWhenItIsDueAndSaysThePerplexity) {
  job_["training"]["steps"] = 30;
  job_["training"]["evaluation"] = {{"everySteps", 12}, {"batches", 4}};
  Attempt run = RunToEnd(1, 1);
  const std::string log = run.process->Log();
  EXPECT_EQ(Count(log, "held-out loss after step "), 4);
  for (const char* step : {" 0:", " 12:", " 24:", " 30:"}) {
    EXPECT_THAT(log, HasSubstr("held-out loss after step" + std::string(step)));
  }
  const auto status = run.StatusFile();
  EXPECT_NEAR(status["validationPerplexity"].get<double>(), std::exp(status["validationLoss"].get<double>()), 1e-6);
}

TEST_F(WatchTest, WritesEventsOfEveryAttempt) {
  job_["observe"] = {{"tensorboard", {{"volume", "checkpoints"}, {"path", "events"}}}};
  job_["training"]["steps"] = 10;
  RunToEnd(2, 1);
  job_["training"]["steps"] = 14;
  RunToEnd(1, 2);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "volumes/checkpoints/events")) {
    const std::string name = entry.path().filename();
    const std::string bytes = Slurp(entry.path());
    const bool first = name.ends_with("trainyard.1.0");
    EXPECT_TRUE(first || name.ends_with("trainyard.2.0")) << name;
    for (const char* tag : {"train/loss", "train/learning_rate", "train/gradient_norm", "train/tokens_per_second"}) {
      EXPECT_EQ(Count(bytes, tag), first ? 10 : 4) << name << " " << tag;
    }
    EXPECT_EQ(Count(bytes, "validation/loss"), first ? 2 : 1) << name;
    EXPECT_EQ(Count(bytes, "validation/perplexity"), first ? 2 : 1) << name;
    ++files;
  }
  EXPECT_EQ(files, 2) << "rank 0 alone writes";
}

TEST_F(WatchTest, TracesTheStepsThatWereAskedFor) {
  job_["training"]["profile"] = {{"fromStep", 9}, {"steps", 2}};
  job_["training"]["steps"] = 12;
  Attempt run = RunToEnd(2, 1);
  for (const char* file : {"trace-0.json", "trace-1.json"}) {
    const auto trace = nlohmann::json::parse(Slurp(run.File(file)), nullptr, false);
    ASSERT_TRUE(trace.is_object()) << file;
    std::map<std::string, int> spans;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "X") {
        EXPECT_GE(event["dur"].get<double>(), 0);
        ++spans[event["name"]];
      }
      if (event["ph"] == "b") {
        const bool barrier = event["name"].get<std::string>().starts_with("Barrier");
        EXPECT_EQ(event.contains("args"), !barrier) << event;
        ++spans["collective " + event["name"].get<std::string>()];
      }
    }
    // Two steps of two micro-batches; two blocks and the root around them.
    EXPECT_EQ(spans["data"], 4);
    EXPECT_EQ(spans["optimizer"], 2);
    EXPECT_EQ(spans["save"], 1);
    EXPECT_EQ(spans.count("evaluation"), 0U);
    for (const char* unit : {"root", "model.layers.0", "model.layers.1"}) {
      EXPECT_EQ(spans["forward " + std::string(unit)], 4) << unit;
      EXPECT_EQ(spans["backward " + std::string(unit)], 4) << unit;
    }
    EXPECT_GE(spans["collective AllGather gather model.layers.0"], 4);
    EXPECT_GE(spans["collective ReduceScatter reduce model.layers.1"], 4);
    EXPECT_EQ(spans["wait: AllReduce step 9 loss"], 1);
    EXPECT_EQ(spans.count("wait: AllReduce step 8 loss"), 0U);
    EXPECT_EQ(spans.count("wait: AllReduce step 11 loss"), 0U);
  }
  // The same losses as without.
  job_["training"].erase("profile");
  EXPECT_EQ(Losses(run.Steps()), Losses(Undisturbed(2).Steps()));
}

TEST_F(WatchTest, ATraceThatCannotBeWrittenCostsAWarning) {
  WriteText(dir_ / "volumes/checkpoints/file", "not a directory");
  job_["training"]["profile"] = {{"fromStep", 2}, {"steps", 1}, {"volume", "checkpoints"}, {"path", "file"}};
  job_["observe"] = {{"tensorboard", {{"volume", "checkpoints"}, {"path", "file"}}}};
  job_["training"]["steps"] = 5;
  Attempt run = RunToEnd(1, 1);
  EXPECT_THAT(run.process->Log(),
              AllOf(HasSubstr("training goes on without its trace"), HasSubstr("training goes on without it")));
}

TEST_F(WatchTest, ALossThatJumpsIsTold) {
  // One sequence in forty, the last of them, is unlike the others. The first comes while the loss still falls.
  std::string noise;
  for (int i = 0; i < 330; ++i) noise += static_cast<char>('a' + i * i % 23);
  WriteText(dir_ / "volumes/corpus/same.txt", std::string(3'300, 'x'));
  WriteText(dir_ / "volumes/corpus/noise.txt", noise);
  job_["data"] = {{"format", "Text"},
                  {"train",
                   {{{"volume", "corpus"}, {"path", "same.txt"}, {"weight", 39}},
                    {{"volume", "corpus"}, {"path", "noise.txt"}, {"weight", 1}}}}};
  job_["training"]["evaluation"]["everySteps"] = 0;
  job_["training"]["globalBatchSize"] = 1;
  job_["training"]["microBatchSize"] = 1;
  job_["training"]["steps"] = 100;
  Attempt run = RunToEnd(1, 1);
  EXPECT_EQ(Count(run.process->Log(), "loss spike"), 1) << run.process->Log();
  EXPECT_THAT(run.process->Log(), HasSubstr("loss spike at step 80: "));
  const auto spike = run.StatusFile()["lossSpike"];
  EXPECT_EQ(spike["step"], 80);
  EXPECT_EQ(spike["loss"], run.Steps()[79]["loss"]);
  EXPECT_LT(spike["median"].get<double>(), spike["loss"].get<double>());
}

}  // namespace
}  // namespace trainyard::loop
