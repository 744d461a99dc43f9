// training.determinism over real processes. Layout: a job that runs twice in the same way gives the same bytes.
// WorldSize: so does a job that runs at other world sizes and strategies, also when it is stopped and resized on the
// way.
#include "tests/trainer/loop/checkpoint_tensors.h"
#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::HasSubstr;

class DeterminismTest : public JobTest {
 protected:
  DeterminismTest() {
    job_["training"]["steps"] = 16;
    job_["training"]["globalBatchSize"] = 10;  // five micro-batches: neither two nor three ranks divide them
    job_["training"]["evaluation"] = {{"everySteps", 8}, {"batches", 5}};
    job_["checkpoint"]["everySteps"] = 0;
  }

  // All that must be the same.
  struct Outcome {
    std::map<int64_t, nlohmann::json> steps;  // loss, gradient norm, learning rate
    nlohmann::json validation, initial_validation, hash;
    Tensors tensors;
    nlohmann::json shifts;
  };

  int64_t Steps() const { return job_["training"]["steps"]; }
  std::string Root() const { return dir_ / ("volumes/checkpoints/" + job_["checkpoint"]["path"].get<std::string>()); }

  static void AddSteps(const Attempt& run, Outcome& outcome) {
    for (const auto& step : run.Steps()) {
      outcome.steps[step["step"]] = {step["loss"], step["gradientNorm"], step["learningRate"]};
    }
  }
  void AddEnd(const Attempt& run, Outcome& outcome) const {
    AddSteps(run, outcome);
    const auto status = run.StatusFile();
    outcome.validation = status["validationLoss"];
    outcome.initial_validation = status["initialValidationLoss"];
    outcome.hash = status["parameterHash"];
    outcome.tensors = ReadTensors(Root(), Steps());
    const auto reader = checkpoint::Reader::Open(Root() + "/" + checkpoint::StepDirectory(Steps()));
    ASSERT_TRUE(reader) << reader.error().message;
    outcome.shifts = reader->train_state().value("determinism", nlohmann::json())["gradientShifts"];
  }

  Outcome Train(int world, const std::string& strategy, const std::string& path, const char* threads = "1") {
    job_["parallelism"]["strategy"] = strategy;
    job_["checkpoint"]["path"] = path;
    Outcome outcome;
    // Threads that spin while they wait would take the cores from each other.
    Attempt run = Start(world, 1, {{"OMP_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "PASSIVE"}});
    EXPECT_EQ(run.process->Wait(), contract::kExitSucceeded) << run.process->Log();
    AddEnd(run, outcome);
    EXPECT_EQ(outcome.steps.size(), static_cast<size_t>(Steps()));
    return outcome;
  }

  static void ExpectSame(const Outcome& got, const Outcome& reference) {
    EXPECT_EQ(got.steps, reference.steps);
    EXPECT_EQ(got.validation, reference.validation);
    EXPECT_EQ(got.initial_validation, reference.initial_validation);
    EXPECT_EQ(got.hash, reference.hash);
    EXPECT_EQ(got.shifts, reference.shifts);
    ASSERT_EQ(got.tensors.size(), reference.tensors.size());
    for (const auto& [name, bytes] : reference.tensors) EXPECT_TRUE(got.tensors.at(name) == bytes) << name;
  }

  // At one, two, three and four ranks, in another strategy each, with and without activation checkpointing, and at two
  // ranks that become three in the middle. One of them is told by its environment to use another number of threads, as
  // a node with fewer ranks would be.
  void ExpectNoDifferenceBetweenWorldSizes() {
    job_["training"]["determinism"] = "WorldSize";
    const Outcome reference = Train(1, "DDP", "one", "2");
    EXPECT_TRUE(reference.shifts.is_object()) << reference.shifts;
    ExpectSame(Train(2, "FSDP", "two"), reference);
    job_["training"]["activationCheckpointing"] = "Full";
    ExpectSame(Train(3, "ZeRO2", "three"), reference);
    job_["parallelism"]["shardSize"] = 2;
    ExpectSame(Train(4, "HSDP", "four"), reference);
    job_["parallelism"].erase("shardSize");
    job_["training"].erase("activationCheckpointing");

    job_["checkpoint"]["path"] = "resized";
    job_["parallelism"]["strategy"] = "FSDP";
    Outcome resized;
    Attempt first = Start(2, 1);
    ASSERT_TRUE(first.AwaitStep(5)) << first.process->Log();
    first.process->Signal(SIGTERM);
    ASSERT_EQ(first.process->Wait(), contract::kExitStopped) << first.process->Log();
    ASSERT_LT(first.LastStep(), Steps());
    AddSteps(first, resized);
    job_["parallelism"]["strategy"] = "ZeRO1";
    const Attempt second = RunToEnd(3, 2);
    EXPECT_EQ(second.StatusFile()["resumedFromStep"], first.LastStep());
    AddEnd(second, resized);
    ExpectSame(resized, reference);
  }
};

TEST_F(DeterminismTest, WorldSizeIsTheSameAtEveryWorldSizeAndThroughAResize) { ExpectNoDifferenceBetweenWorldSizes(); }

TEST_F(DeterminismTest, WorldSizeInBfloat16) {
  job_["training"]["precision"] = "BF16";
  ExpectNoDifferenceBetweenWorldSizes();
}

// Parameters of odd sizes begin anywhere in the flat buffers of DDP and of one rank, and at the begin of their own
// memory elsewhere; products of one row are where a library may care.
TEST_F(DeterminismTest, WorldSizeWithParametersThatBeginAnywhere) {
  job_["training"]["determinism"] = "WorldSize";
  job_["training"].merge_patch({{"sequenceLength", 1}, {"microBatchSize", 1}, {"globalBatchSize", 5}, {"steps", 4}});
  job_["training"]["schedule"]["warmupSteps"] = 0;
  job_["model"].merge_patch({{"layers", 1},
                             {"hiddenSize", 30},
                             {"attentionHeads", 3},
                             {"kvHeads", 3},
                             {"ffnSize", 1},
                             {"tiedEmbeddings", true}});
  const Outcome reference = Train(1, "DDP", "one");
  ExpectSame(Train(3, "ZeRO1", "three"), reference);
  ExpectSame(Train(2, "FSDP", "two"), reference);
}

TEST_F(DeterminismTest, LayoutIsTheSameRunAfterRun) {
  job_["training"]["determinism"] = "Layout";
  job_["training"]["steps"] = 6;
  for (const std::string strategy : {"DDP", "FSDP"}) {
    const Outcome once = Train(2, strategy, "once-" + strategy, "2");
    ExpectSame(Train(2, strategy, "again-" + strategy, "2"), once);
  }
}

TEST_F(DeterminismTest, WorldSizeRefusesToGoOnWithWhatWouldNotBeTheSame) {
  job_["training"]["determinism"] = "WorldSize";
  job_["training"]["schedule"]["warmupSteps"] = 0;
  job_["training"]["steps"] = 2;
  RunToEnd(1, 1);
  job_["training"]["steps"] = 3;
  const auto refused = [&](const std::string& what) {
    Attempt run = Start(1, 2);
    EXPECT_EQ(run.process->Wait(), contract::kExitConfiguration) << run.process->Log();
    EXPECT_THAT(run.process->Log(), HasSubstr(what));
  };
  job_["training"]["threads"] = 2;
  refused(
      "it was made with training.threads 1, the job says 2: with training.determinism WorldSize results would not "
      "be the same; set it back, or determinism to Layout");
  job_["training"].erase("threads");
  job_["training"]["microBatchSize"] = 5;
  refused("it was made with training.microBatchSize 2, the job says 5: ");
  job_["training"]["determinism"] = "Layout";
  RunToEnd(1, 3);
}

}  // namespace
}  // namespace trainyard::loop
