#include "operator/cli/run/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class LadderTest : public testing::Test {
 protected:
  LadderTest() {
    dir_.Write("state/volumes/corpus/train.txt", "hello");
    std::vector<std::string> errors;
    setup_ = PrepareRun({.file = dir_.Write("job.yaml", kSmallJob)}, dir_ / "state", errors);
    EXPECT_THAT(errors, IsEmpty());
  }
  TemporaryDirectory dir_;
  RunSetup setup_;
  std::vector<std::string> errors_;
};

TEST_F(LadderTest, ARungIsTheJobForAFewStepsAndLeavesNothingBehind) {
  setup_.job.spec.gpus.max_count = 8;
  setup_.job.spec.observe.tensor_board = api::VolumeDirectory{"corpus", "events"};
  setup_.job.spec.observe.profile = api::Profile{.from_step = 1, .volume = "corpus", .path = "traces"};
  const RunSetup rung = RungOf(setup_, dir_ / "state", 4, 30, errors_);
  EXPECT_THAT(errors_, IsEmpty());
  const api::Spec& spec = rung.job.spec;
  EXPECT_EQ(spec.gpus.count, 4);
  EXPECT_EQ(spec.gpus.max_count, 0);
  EXPECT_EQ(spec.training.steps, 30);
  EXPECT_LE(spec.training.schedule.warmup_steps, 30);
  EXPECT_FALSE(spec.checkpoint);
  EXPECT_FALSE(spec.observe.tensor_board || spec.observe.profile) << "the job's own curves and timelines";
  EXPECT_EQ(rung.cluster.nodes, 1);
  EXPECT_EQ(rung.cluster.gpus_per_node, 4);
  EXPECT_EQ(rung.cluster.state_dir, dir_ / "state/ladder/4");
  // The claims of the job, not those of a state directory that is removed afterwards.
  EXPECT_EQ(spec.volumes[0].host_path, dir_ / "state/volumes/corpus");
  EXPECT_EQ(spec.volumes[0].claim_name, "");
  EXPECT_EQ(spec.training.global_batch_size, setup_.job.spec.training.global_batch_size);
  EXPECT_EQ(spec.training.seed, setup_.job.spec.training.seed);
}

TEST_F(LadderTest, NeedsTheBundledTrainerAndSomethingToRun) {
  api::Spec& spec = setup_.job.spec;
  EXPECT_FALSE(LadderProblem(spec));
  spec.plan_only = true;
  EXPECT_THAT(LadderProblem(spec), testing::Optional(HasSubstr("spec.planOnly")));
  spec.plan_only = false;
  spec.command = {"torchrun", "train.py"};
  EXPECT_THAT(LadderProblem(spec), testing::Optional(HasSubstr("bundled trainer")));
}

TEST_F(LadderTest, SaysWhichSizeIsImpossible) {
  const int64_t batch = setup_.job.spec.training.global_batch_size;
  RungOf(setup_, dir_ / "state", 1, 30, errors_);
  EXPECT_THAT(errors_, IsEmpty());
  RungOf(setup_, dir_ / "state", batch + 1, 30, errors_);
  EXPECT_THAT(errors_, Contains(HasSubstr(std::to_string(batch + 1) + " GPUs: spec.")));
}

}  // namespace
}  // namespace trainyard::cli
