#include "operator/api/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TrainingJob ImageJob() {
  TrainingJob job = JobFromJson(MinimalImageManifest()).value();
  ApplyDefaults(job);
  return job;
}

TEST(Validate, PassesTheMinimalJobs) {
  EXPECT_THAT(Validate(SmallJob()), IsEmpty());
  EXPECT_THAT(Validate(ImageJob()), IsEmpty());
}

// Each case breaks one thing in the small job and expects exactly that error.
TEST(Validate, NamesEachProblemWithItsPath) {
  struct Case {
    std::function<void(TrainingJob&)> breaks;
    const char* message;
  };
  auto arch = [](TrainingJob& j) -> Architecture& { return *j.spec.model.architecture; };
  const Case cases[] = {
      {[](auto& j) { j.meta.name = ""; }, "metadata.name: is required"},
      {[](auto& j) { j.meta.name = "Tiny"; }, "metadata.name: 'Tiny' is not a DNS label of at most 45"},
      {[](auto& j) { j.meta.name = std::string(46, 'a'); }, "metadata.name: '"},
      {[](auto& j) { j.meta.ns = "a/b"; }, "metadata.namespace: 'a/b' is not a DNS label"},
      {[](auto& j) { j.spec.model.parameters = "7B"; }, "spec.model: give parameters or architecture, not both"},
      {[](auto& j) { j.spec.model.architecture.reset(); },
       "spec.model.architecture: is required, since the bundled trainer must know the model"},
      {[&](auto& j) { arch(j).kv_heads = 3; }, "spec.model.architecture.kvHeads: 3 does not divide attentionHeads 8"},
      {[&](auto& j) { arch(j).hidden_size = 250; },
       "spec.model.architecture.hiddenSize: 250 is not divisible by attentionHeads 8"},
      {[&](auto& j) { arch(j).hidden_size = 24; }, "spec.model.architecture.hiddenSize: the head size 3"},
      {[&](auto& j) { arch(j).layers = 0; }, "spec.model.architecture.layers: 0 is less than 1"},
      {[](auto& j) {
         j.spec.training.evaluation.every_steps = 10;
         j.spec.data->validation.clear();
       },
       "spec.data.validation: is required when spec.training.evaluation.everySteps is set"},
      {[&](auto& j) { arch(j).vocab_size = 100; }, "spec.model.architecture.vocabSize: 100 is less than the 256"},
      {[&](auto& j) { arch(j).max_positions = 100; },
       "spec.model.architecture.maxPositions: 100 is less than spec.training.sequenceLength 4096"},
      {[&](auto& j) {
         j.spec.data->format = DataFormat::kTokens;
         arch(j).vocab_size = 0;
       },
       "spec.model.architecture.vocabSize: is required when spec.data.format is Tokens"},
      {[](auto& j) { j.spec.data.reset(); }, "spec.data: is required, since the bundled trainer"},
      {[](auto& j) { j.spec.data->train.clear(); }, "spec.data.train: is required: at least one file"},
      {[](auto& j) { j.spec.data->train[0].volume = "corpsu"; },
       "spec.data.train[0].volume: no volume 'corpsu' in spec.volumes; did you mean 'corpus'?"},
      {[](auto& j) { j.spec.data->train[0].path = "/train.txt"; },
       "spec.data.train[0].path: '/train.txt' must be relative to its volume"},
      {[](auto& j) { j.spec.data->train[0].path = "a/../b"; }, "spec.data.train[0].path: 'a/../b' must not contain"},
      {[](auto& j) { j.spec.data->validation = {{"corpus", ""}}; }, "spec.data.validation[0].path: is required"},
      {[](auto& j) { j.spec.training.steps = 0; }, "spec.training.steps: 0 is less than 1"},
      {[](auto& j) { j.spec.training.micro_batch_size = 600; },
       "spec.training.microBatchSize: 600 is more than globalBatchSize 512"},
      {[](auto& j) { j.spec.training.schedule.warmup_steps = 2000; },
       "spec.training.schedule.warmupSteps: 2000 is more than steps 1000"},
      {[](auto& j) { j.spec.training.optimizer.momentum = 0.9; },
       "spec.training.optimizer.momentum: has no meaning with AdamW; leave it out"},
      {[](auto& j) { j.spec.training.optimizer.momentum = 1.5; },
       "spec.training.optimizer.momentum: 1.5 is more than 1.0"},
      {[](auto& j) { j.spec.training.optimizer.nesterov = true; },
       "spec.training.optimizer.nesterov: has no meaning with AdamW; leave it out"},
      {[](auto& j) { j.spec.training.optimizer = {.name = OptimizerKind::kSgd, .nesterov = true}; },
       "spec.training.optimizer.nesterov: needs momentum above 0"},
      {[](auto& j) { j.spec.training.optimizer = {.name = OptimizerKind::kSgd, .betas = {0.9, 0.999}}; },
       "spec.training.optimizer.betas: has no meaning with SGD; leave it out"},
      {[](auto& j) { j.spec.training.optimizer = {.name = OptimizerKind::kSgd, .epsilon = 0.1}; },
       "spec.training.optimizer.epsilon: has no meaning with SGD; leave it out"},
      {[](auto& j) { j.spec.training.schedule.decay_steps = 10; },
       "spec.training.schedule.decaySteps: has no meaning with Cosine; set type to WarmupStableDecay or leave it out"},
      {[](auto& j) { j.spec.training.schedule.decay_shape = DecayShape::kSqrt; },
       "spec.training.schedule.decayShape: has no meaning with Cosine"},
      {[](auto& j) {
         j.spec.training.schedule = {.type = ScheduleType::kWarmupStableDecay, .warmup_steps = 1000, .decay_steps = 1};
       },
       "spec.training.schedule.decaySteps: 1 after warmupSteps 1000 is more than steps 1000"},
      {[](auto& j) { j.spec.training.optimizer.betas = {0.9}; },
       "spec.training.optimizer.betas: must have 2 numbers, has 1"},
      {[](auto& j) { j.spec.training.optimizer.betas = {0.9, 1.0}; },
       "spec.training.optimizer.betas[1]: 1.0 must be less than 1.0"},
      {[](auto& j) { j.spec.training.optimizer.learning_rate = 0; },
       "spec.training.optimizer.learningRate: 0.0 must be more than 0.0"},
      {[](auto& j) { j.spec.training.seed = -1; }, "spec.training.seed: -1 is less than 0"},
      {[](auto& j) { j.spec.gpus = {.min_count = 8, .max_count = 4}; },
       "spec.gpus.minCount: 8 is more than maxCount 4"},
      {[](auto& j) { j.spec.gpus = {.count = 2, .min_count = 4}; }, "spec.gpus.minCount: 4 is more than count 2"},
      {[](auto& j) { j.spec.gpus = {.count = 8, .max_count = 4}; }, "spec.gpus.count: 8 is more than maxCount 4"},
      {[](auto& j) { j.spec.gpus.count = 513; }, "spec.gpus.count: 513 is more than spec.training.globalBatchSize 512"},
      {[](auto& j) { j.spec.gpus = {.count = 6, .per_node = 4}; }, "spec.gpus.count: 6 is not divisible by perNode 4"},
      {[](auto& j) { j.spec.gpus = {.count = 2, .per_node = 4}; }, "spec.gpus.perNode: 4 is more than count 2"},
      {[](auto& j) { j.spec.gpus.count = -1; }, "spec.gpus.count: -1 is less than 0"},
      {[](auto& j) { j.spec.gpus.products = {"L4", "L4"}; }, "spec.gpus.products[1]: 'L4' is given twice"},
      {[](auto& j) { j.spec.checkpoint->volume = ""; }, "spec.checkpoint.volume: is required"},
      {[](auto& j) { j.spec.checkpoint->volume = "elsewhere"; }, "spec.checkpoint.volume: no volume 'elsewhere'"},
      {[](auto& j) { j.spec.checkpoint->path = "../x"; }, "spec.checkpoint.path: '../x' must not contain"},
      {[](auto& j) { j.spec.checkpoint->every_steps = 0; }, "spec.checkpoint.every.steps: 0 is less than 1"},
      {[](auto& j) { j.spec.checkpoint->every_minutes = 50'000; },
       "spec.checkpoint.every.minutes: 50000.0 is more than 43200.0"},
      {[](auto& j) {
         j.spec.checkpoint->every_steps = 10;
         j.spec.checkpoint->every_minutes = 5;
       },
       "spec.checkpoint.every: give steps or minutes, not both"},
      {[](auto& j) { j.spec.checkpoint->keep_every_steps = -1; }, "spec.checkpoint.keepEverySteps: -1 is less than 0"},
      {[](auto& j) { j.spec.checkpoint->verify = {.every_hours = -1}; },
       "spec.checkpoint.verify.everyHours: -1.0 is less than 0.0"},
      {[](auto& j) { j.spec.checkpoint->resume_from = ResumeFrom{"chekpoints", "base"}; },
       "spec.checkpoint.resumeFrom.volume: no volume 'chekpoints' in spec.volumes; did you mean 'checkpoints'?"},
      {[](auto& j) { j.spec.checkpoint->resume_from = ResumeFrom{"checkpoints", ""}; },
       "spec.checkpoint.resumeFrom.path: is required"},
      {[](auto& j) { j.spec.checkpoint->resume_from = ResumeFrom{"checkpoints", "tiny"}; },
       "spec.checkpoint.resumeFrom.path: 'tiny' is the job's own directory"},
      {[](auto& j) {
         j.spec.checkpoint->resume = Resume::kNever;
         j.spec.checkpoint->resume_from = ResumeFrom{"checkpoints", "base"};
       },
       "spec.checkpoint.resumeFrom: has no meaning when resume is Never"},
      {[](auto& j) { j.spec.checkpoint->resume = Resume::kStep; },
       "spec.checkpoint.resumeStep: is required when resume is Step"},
      {[](auto& j) { j.spec.checkpoint->resume_step = 5; },
       "spec.checkpoint.resumeStep: has no meaning when resume is Latest"},
      {[](auto& j) { j.spec.volumes[1] = {.name = "checkpoints", .empty_dir = true}; },
       "spec.checkpoint.volume: volume 'checkpoints' is an emptyDir"},
      {[](auto& j) { j.spec.recovery.max_grace_seconds = 0; }, "spec.recovery.maxGraceSeconds: 0 is less than 1"},
      {[](auto& j) { j.spec.args = {"-v"}; }, "spec.args: has no meaning without image or command"},
      {[](auto& j) { j.spec.env = {{"A", ""}, {"A", ""}}; }, "spec.env[1].name: 'A' is given twice"},
      {[](auto& j) { j.spec.env = {{"1A", ""}}; }, "spec.env[0].name: '1A' may hold letters"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "corpus", .host_path = "/x"}); },
       "spec.volumes[2].name: 'corpus' is given twice"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "A", .host_path = "/x"}); },
       "spec.volumes[2].name: 'A' is not a DNS label"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "x"}); },
       "spec.volumes[2]: needs exactly one of persistentVolumeClaim, hostPath and emptyDir, has 0"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "x", .claim_name = "c", .host_path = "/x"}); },
       "spec.volumes[2]: needs exactly one of"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "x", .host_path = "x"}); },
       "spec.volumes[2].hostPath.path: 'x' must be absolute"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "x", .host_path = "/a/.."}); },
       "spec.volumes[2].hostPath.path: '/a/..' must not contain '..' parts"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "trainyard-x", .host_path = "/x"}); },
       "spec.volumes[2].name: 'trainyard-x' is reserved; names must not start with trainyard-"},
      {[](auto& j) { j.spec.managed_by = "someone"; }, "spec.managedBy: 'someone' is not a path with a domain"},
      {[](auto& j) { j.spec.volumes.push_back({.name = "x", .claim_name = "C"}); },
       "spec.volumes[2].persistentVolumeClaim.claimName: 'C' is not a DNS name"},
  };
  for (const Case& c : cases) {
    TrainingJob job = SmallJob();
    c.breaks(job);
    EXPECT_THAT(Validate(job), ElementsAre(StartsWith(c.message))) << c.message;
  }
}

TEST(Validate, HoldsOwnProgramsToWhatOnlyTheyNeed) {
  TrainingJob job = ImageJob();
  job.spec.parallelism.strategy = Strategy::kAuto;
  EXPECT_THAT(Validate(job),
              ElementsAre(StartsWith("spec.parallelism.strategy: is required with an image or command")));
  job = ImageJob();
  job.spec.model.parameters = "7Q";
  EXPECT_THAT(Validate(job), ElementsAre(StartsWith("spec.model.parameters: '7Q' is not a parameter count")));
  job.spec.model.parameters = "";
  EXPECT_THAT(Validate(job), ElementsAre(StartsWith("spec.model: give parameters (such as 7B) or architecture")));
  job = ImageJob();
  job.spec.image = "two words";
  EXPECT_THAT(Validate(job), ElementsAre(StartsWith("spec.image: 'two words' contains white space")));
}

TEST(Validate, ReturnsEveryErrorAtOnce) {
  TrainingJob job = SmallJob();
  job.spec.gpus = {.count = -1, .min_count = 8, .max_count = 4};
  job.spec.training.steps = 0;
  job.spec.data->train[0].volume = "nowhere";
  EXPECT_EQ(Validate(job).size(), 4u);
}

TEST(DecaySteps, AreATenthWhereNoneAreAskedForAndNeverMoreThanWarmUpLeaves) {
  const auto steps = [](int64_t total, int64_t warmup, int64_t decay) {
    Training t;
    t.steps = total;
    t.schedule = {.type = ScheduleType::kWarmupStableDecay, .warmup_steps = warmup, .decay_steps = decay};
    return DecaySteps(t);
  };
  EXPECT_EQ(steps(1000, 0, 0), 100);
  EXPECT_EQ(steps(1001, 0, 0), 101) << "rounded up";
  EXPECT_EQ(steps(1, 0, 0), 1);
  EXPECT_EQ(steps(1000, 950, 0), 50);
  EXPECT_EQ(steps(1000, 1000, 0), 0);
  EXPECT_EQ(steps(1000, 10, 990), 990);
}

TEST(ValidateUpdate, AllowsWhatAResizeChanges) {
  TrainingJob old_job = SmallJob();
  TrainingJob new_job = old_job;
  new_job.spec.gpus.count = 4;
  new_job.spec.suspend = true;
  new_job.spec.training.steps = 2000;
  new_job.spec.checkpoint->every_steps = 10;
  EXPECT_THAT(ValidateUpdate(old_job, new_job), IsEmpty());
}

TEST(ValidateUpdate, SeesNoChangeInDefaultsWrittenOut) {
  TrainingJob written = SmallJob();
  TrainingJob bare = JobFromJson(MinimalTrainerManifest()).value();
  EXPECT_THAT(ValidateUpdate(bare, written), IsEmpty());
  EXPECT_THAT(ValidateUpdate(written, bare), IsEmpty());
}

TEST(ValidateUpdate, RefusesWhatCheckpointsHangOn) {
  struct Case {
    std::function<void(Spec&)> change;
    const char* path;
  };
  const Case cases[] = {
      {[](Spec& s) { s.model.architecture->layers = 7; }, "spec.model"},
      {[](Spec& s) { s.data->format = DataFormat::kTokens; }, "spec.data.format"},
      {[](Spec& s) { s.data->train.push_back({"corpus", "more.txt"}); }, "spec.data.train"},
      {[](Spec& s) { s.training.global_batch_size = 8; }, "spec.training.globalBatchSize"},
      {[](Spec& s) { s.training.precision = Precision::kFp32; }, "spec.training.precision"},
      {[](Spec& s) { s.training.optimizer.name = OptimizerKind::kSgd; }, "spec.training.optimizer.name"},
      {[](Spec& s) { s.training.seed = 1; }, "spec.training.seed"},
      {[](Spec& s) { s.checkpoint->volume = "corpus"; }, "spec.checkpoint.volume"},
      {[](Spec& s) { s.checkpoint->path = "b"; }, "spec.checkpoint.path"},
      {[](Spec& s) { s.managed_by = "example.com/other"; }, "spec.managedBy"},
  };
  for (const Case& c : cases) {
    TrainingJob new_job = SmallJob();
    c.change(new_job.spec);
    EXPECT_THAT(ValidateUpdate(SmallJob(), new_job),
                ElementsAre(StartsWith(std::string(c.path) + ": cannot change once the job exists")))
        << c.path;
  }
  TrainingJob without = SmallJob();
  without.spec.checkpoint.reset();
  EXPECT_EQ(ValidateUpdate(SmallJob(), without).size(), 2u);  // volume and path went
}

}  // namespace
}  // namespace trainyard::api
