#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/defaults.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/plan.h"

namespace trainyard::sizing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A Llama of about 3 million parameters in FP32, as the quick start trains it.
api::TrainingJob Small() {
  api::TrainingJob job;
  job.meta.name = "small";
  job.meta.generation = 3;
  api::Architecture a;
  a.layers = 6;
  a.hidden_size = 192;
  a.attention_heads = 6;
  a.kv_heads = 2;
  job.spec.model.architecture = a;
  job.spec.data = api::Data{};
  job.spec.training.precision = api::Precision::kFp32;
  job.spec.training.sequence_length = 256;
  job.spec.training.global_batch_size = 16;
  job.spec.gpus.count = 2;
  api::ApplyDefaults(job);
  return job;
}

// A user's own script.
api::TrainingJob Script(const std::string& parameters, int64_t count) {
  api::TrainingJob job;
  job.meta.name = "script";
  job.spec.model.parameters = parameters;
  job.spec.image = "me/finetune:1";
  job.spec.command = {"torchrun", "train.py"};
  job.spec.parallelism.strategy = api::Strategy::kFsdp;
  job.spec.gpus.count = count;
  job.spec.training.micro_batch_size = 1;
  return job;
}

std::vector<ProductSupply> Simulated(int64_t nodes, int64_t per_node, int64_t mib = 2048) {
  return {{.product = kSimulatedProduct, .memory_mib = mib, .gpus_per_node = per_node, .nodes = nodes}};
}

std::vector<ProductSupply> H100s(int64_t nodes) {
  return {{.product = "H100-SXM", .memory_mib = 81559, .gpus_per_node = 8, .nodes = nodes}};
}

Error ErrorOf(const api::TrainingJob& job, const std::vector<ProductSupply>& supply) {
  auto plan = PlanJob(job, supply);
  return plan ? Error{ErrorCode::kInternal, "accepted"} : plan.error();
}

TEST(PlanJob, ASmallModelOnSimulatedNodes) {
  api::TrainingJob job = Small();
  for (int64_t count : {1, 2, 3, 4}) {
    job.spec.gpus.count = count;
    auto plan = PlanJob(job, Simulated(2, 2));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->gpus, count);
    EXPECT_EQ(plan->per_node, count == 4 || count == 2 ? 2 : 1);
    EXPECT_EQ(plan->strategy, "DDP");
    EXPECT_EQ(plan->product, "Simulated");
    EXPECT_EQ(plan->generation, 3);
    EXPECT_GE(plan->micro_batch_size * plan->accumulation * count, 16);
    EXPECT_EQ(plan->parameters, 2'410'944 + 256 * 192);
    EXPECT_EQ(plan->checkpoint_bytes, 12 * plan->parameters);
    EXPECT_LE(plan->bytes_per_gpu, plan->capacity_bytes);
    EXPECT_FALSE(plan->why.empty());
  }
}

TEST(PlanJob, TheStrategyOfTheJobIsKept) {
  api::TrainingJob job = Small();
  for (api::Strategy strategy :
       {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kZero2, api::Strategy::kFsdp}) {
    job.spec.parallelism.strategy = strategy;
    job.spec.gpus.count = 4;
    auto plan = PlanJob(job, Simulated(2, 2));
    ASSERT_TRUE(plan) << plan.error().message;
  }
  EXPECT_EQ(PlanJob(job, Simulated(2, 2))->strategy, "FSDP");
}

TEST(PlanJob, MicroBatchOfTheJobIsKept) {
  api::TrainingJob job = Small();
  job.spec.training.micro_batch_size = 4;
  auto plan = PlanJob(job, Simulated(1, 2));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->micro_batch_size, 4);
  EXPECT_EQ(plan->accumulation, 2);
}

TEST(PlanJob, CountZeroIsSizedFromTheModel) {
  api::TrainingJob job = Script("7B", 0);
  auto plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  // Two would have to compute the activations again, which takes more GPU time than two more GPUs.
  EXPECT_EQ(plan->gpus, 4);
  EXPECT_EQ(plan->strategy, "FSDP");
  EXPECT_EQ(plan->activation_checkpointing, "None");
  ASSERT_FALSE(plan->alternatives.empty());
  EXPECT_EQ(plan->alternatives[0].gpus, 2);
  EXPECT_EQ(plan->alternatives[0].method, "FSDP with full activation checkpointing");
  EXPECT_THAT(plan->alternatives[0].why, HasSubstr("GPU-hours more"));
  job.spec.gpus.max_count = 2;
  EXPECT_EQ(PlanJob(job, H100s(4))->gpus, 2);
  EXPECT_EQ(PlanJob(job, H100s(4))->activation_checkpointing, "Full");
  // Three and six GPUs of 512 sequences would not take the same number each.
  job.spec.gpus.min_count = 3;
  job.spec.gpus.max_count = 8;
  EXPECT_EQ(PlanJob(job, H100s(4))->gpus, 4);
  job.spec.gpus.max_count = 3;
  EXPECT_EQ(PlanJob(job, H100s(4))->gpus, 3);
  job = Script("70B", 0);
  EXPECT_EQ(PlanJob(job, H100s(8))->gpus, 32);
}

TEST(PlanJob, ATwelveGpuJobTakesTwoNodesOfSix) {
  auto plan = PlanJob(Script("7B", 12), H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->gpus, 12);
  EXPECT_EQ(plan->per_node, 6);
}

TEST(PlanJob, WhatDoesNotFitSaysTheNumbersAndTheWaysOut) {
  const Error error = ErrorOf(Script("7B", 1), H100s(4));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, StartsWith("DoesNotFit: 7B as FSDP with full activation checkpointing on 1 x H100-SXM "));
  EXPECT_THAT(error.message, HasSubstr("usable per GPU, "));
  EXPECT_THAT(error.message, HasSubstr("; ways out: "));
  EXPECT_THAT(error.message, HasSubstr("More GPUs: FSDP on 4 x H100-SXM needs "));
  EXPECT_THAT(error.message, HasSubstr("spec.gpus.allowOvercommit: true"));
}

TEST(PlanJob, OvercommitStartsWhatDoesNotFit) {
  api::TrainingJob job = Script("7B", 1);
  job.spec.gpus.allow_overcommit = true;
  auto plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(plan->bytes_per_gpu, plan->capacity_bytes);
  EXPECT_THAT(plan->why, HasSubstr("allowOvercommit"));
}

TEST(PlanJob, ActivationCheckpointingIsTheJobsOrThePlans) {
  using api::ActivationCheckpointing;
  api::TrainingJob job = Script("7B", 2);
  job.spec.image.clear();
  job.spec.command.clear();
  EXPECT_EQ(PlanJob(job, H100s(4))->activation_checkpointing, "Selective") << "the cheaper way to make it fit";
  job.spec.training.activation_checkpointing = ActivationCheckpointing::kNone;
  EXPECT_THAT(ErrorOf(job, H100s(4)).message, StartsWith("DoesNotFit"));
  job.spec.training.activation_checkpointing = ActivationCheckpointing::kFull;
  EXPECT_EQ(PlanJob(job, H100s(4))->activation_checkpointing, "Full");
  job = Small();
  EXPECT_EQ(PlanJob(job, Simulated(2, 2))->activation_checkpointing, "None");
  job.spec.training.activation_checkpointing = ActivationCheckpointing::kSelective;
  EXPECT_EQ(PlanJob(job, Simulated(2, 2))->activation_checkpointing, "Selective");
}

TEST(PlanJob, OffloadIsTheJobs) {
  api::TrainingJob job = Script("7B", 1);
  job.spec.image.clear();
  job.spec.command.clear();
  job.spec.parallelism.strategy = api::Strategy::kAuto;
  EXPECT_THAT(ErrorOf(job, H100s(4)).message, AllOf(StartsWith("DoesNotFit"), HasSubstr("Optimizer on the host: ")));
  job.spec.parallelism.offload = api::OffloadTo::kCpu;
  auto plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->offload, "CPU");
  EXPECT_EQ(plan->strategy, "DDP");
  EXPECT_EQ(plan->bytes.master + plan->bytes.optimizer, 0);
  EXPECT_EQ(plan->bytes.weights, 2 * plan->parameters);
  EXPECT_EQ(plan->host_bytes_per_gpu, 12 * plan->parameters);
  EXPECT_EQ(plan->disk_bytes_per_gpu, 0);
  // Twice the model: its weights and gradients together are more than the GPU has, its gradients are not.
  job = Script("13B", 1);
  job.spec.image.clear();
  job.spec.command.clear();
  job.spec.parallelism = {.strategy = api::Strategy::kAuto, .offload = api::OffloadTo::kNvme, .offload_volume = "disk"};
  plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->offload, "NVMe");
  EXPECT_EQ(plan->strategy, "FSDP") << "block by block, on one GPU";
  EXPECT_EQ(plan->bytes.weights, 0);
  EXPECT_EQ(plan->host_bytes_per_gpu, 2 * plan->parameters);
  EXPECT_EQ(plan->disk_bytes_per_gpu, 12 * plan->parameters);
}

TEST(PlanJob, HsdpShardsInTheNodeAndReplicatesOverNodes) {
  api::TrainingJob job = Script("7B", 16);
  job.spec.parallelism.strategy = api::Strategy::kHsdp;
  auto plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->strategy, "HSDP");
  EXPECT_EQ(plan->per_node, 8);
  const int64_t over_two_nodes = plan->bytes.optimizer;
  job.spec.gpus.count = 8;
  plan = PlanJob(job, H100s(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->strategy, "FSDP") << "inside one node the two are one";
  EXPECT_EQ(plan->bytes.optimizer, over_two_nodes);
  job.spec.image.clear();
  job.spec.command.clear();
  job.spec.gpus.count = 16;
  EXPECT_EQ(PlanJob(job, H100s(4))->strategy, "HSDP") << "our trainer runs it too";
}

TEST(PlanJob, GradientsAreReducedOnceAStepWhereMemoryAllowsAndItIsFaster_Bug49) {
  // One slow port for eight GPUs, and many micro-batches.
  auto slow = Catalogue::FromYaml("products: [{name: H100-SXM, networkGBps: 1.5625}]", "slow");
  ASSERT_TRUE(slow) << slow.error().message;
  const auto catalogue = std::make_shared<const Catalogue>(*slow);
  api::TrainingJob job = Script("7B", 16);
  job.spec.image.clear();
  job.spec.command.clear();
  job.spec.parallelism.strategy = api::Strategy::kFsdp;
  job.spec.training.micro_batch_size = 1;
  auto once = PlanJob(job, H100s(4), catalogue);
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_EQ(once->gradient_reduction, "LastMicroBatch") << once->why;
  EXPECT_THAT(once->why, HasSubstr("gradients reduced once a step"));
  job.spec.training.global_batch_size = 16;  // one micro-batch per rank and step
  auto each = PlanJob(job, H100s(4), catalogue);
  ASSERT_TRUE(each) << each.error().message;
  EXPECT_EQ(each->gradient_reduction, "EachMicroBatch");
  EXPECT_GT(once->bytes.gradients, 10 * each->bytes.gradients) << "whole against a sixteenth";
  // Whole gradients of 30B would not fit.
  job = Script("34B", 16);
  job.spec.image.clear();
  job.spec.command.clear();
  job.spec.parallelism.strategy = api::Strategy::kFsdp;
  job.spec.training.micro_batch_size = 1;
  auto large = PlanJob(job, H100s(4), catalogue);
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(large->gradient_reduction, "EachMicroBatch");
}

TEST(PlanJob, BitsThatNoWorldSizeMayChangeKeepTheMicroBatchOfTheFirstPlan) {
  api::TrainingJob job = Small();
  job.spec.gpus.count = 2;
  auto first = PlanJob(job, Simulated(2, 2));
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_NE(first->micro_batch_size, 1);
  job.status.plan = *first;
  job.status.plan->micro_batch_size = 1;
  EXPECT_EQ(PlanJob(job, Simulated(2, 2))->micro_batch_size, first->micro_batch_size);
  job.spec.training.determinism = api::Determinism::kWorldSize;
  auto exact = PlanJob(job, Simulated(2, 2));
  ASSERT_TRUE(exact) << exact.error().message;
  EXPECT_EQ(exact->micro_batch_size, 1);
  EXPECT_EQ(exact->bytes.gradients, 2 * first->bytes.gradients) << "they are added as 64-bit integers";
}

TEST(PlanJob, MoreGpusThanSequencesIsImpossible) {
  api::TrainingJob job = Small();
  job.spec.gpus.count = 17;
  Error error = ErrorOf(job, Simulated(20, 2));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "spec.gpus.count: 17 GPUs is more than globalBatchSize 16");
  job.spec.gpus.count = 16;
  EXPECT_TRUE(PlanJob(job, Simulated(20, 2)));
}

TEST(PlanJob, AbsurdNumbersAreRefusedOrSurvived) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  api::TrainingJob job = Small();
  job.spec.training.global_batch_size = kHuge;
  EXPECT_THAT(ErrorOf(job, Simulated(2, 2)).message, StartsWith("spec.training.globalBatchSize: "));
  job = Small();
  job.spec.training.sequence_length = -1;
  EXPECT_THAT(ErrorOf(job, Simulated(2, 2)).message, StartsWith("spec.training.sequenceLength: -1 is not between 1"));
  job = Small();
  job.spec.training.global_batch_size = job.spec.training.micro_batch_size = job.spec.training.sequence_length =
      100'000'000;
  EXPECT_THAT(ErrorOf(job, Simulated(2, 2)).message, StartsWith("DoesNotFit"));
  EXPECT_TRUE(PlanJob(Small(), Simulated(kHuge, kHuge, kHuge)));
}

TEST(PlanJob, ProductsAreCheckedAgainstCatalogueAndCluster) {
  api::TrainingJob job = Script("1B", 1);
  job.spec.gpus.products = {"H100-SMX"};
  Error error = ErrorOf(job, H100s(1));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("spec.gpus.products: 'H100-SMX' is no known GPU product"));
  job.spec.gpus.products = {"B200"};
  error = ErrorOf(job, H100s(1));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.message, "spec.gpus.products: the cluster has none of them, only H100-SXM");
  error = ErrorOf(job, {});
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("no node of the cluster offers GPUs of a known product"));
}

TEST(PlanJob, PricesAndGoalChooseTheProduct) {
  std::vector<ProductSupply> both = H100s(2);
  both.push_back({.product = "L40S", .memory_mib = 46068, .gpus_per_node = 8, .nodes = 2});
  api::TrainingJob job = Script("1B", 2);
  EXPECT_EQ(PlanJob(job, both)->product, "H100-SXM") << "without prices, the fewest GPU-hours";
  auto priced = Catalogue::FromYaml(R"(
currency: EUR
products:
- {name: H100-SXM, pricePerHour: 4}
- {name: L40S, pricePerHour: 0.5}
)",
                                    "prices");
  ASSERT_TRUE(priced) << priced.error().message;
  const auto catalogue = std::make_shared<const Catalogue>(*priced);
  auto plan = PlanJob(job, both, catalogue);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->product, "L40S");
  EXPECT_EQ(plan->currency, "EUR");
  EXPECT_GT(*plan->cost, 0);
  job.spec.gpus.goal = api::Goal::kFastest;
  EXPECT_EQ(PlanJob(job, both, catalogue)->product, "H100-SXM");
  job.spec.gpus.goal = api::Goal::kCheapest;
  // Sized from the model: one H100 holds 1B and takes less GPU time than any number of L40S.
  job = Script("1B", 0);
  EXPECT_EQ(PlanJob(job, both)->product, "H100-SXM");
  EXPECT_EQ(PlanJob(job, both)->gpus, 1);
}

TEST(PlanJob, AProductThatTheClusterHasEnoughOfWins) {
  std::vector<ProductSupply> both = H100s(4);
  both.push_back({.product = "L40S", .memory_mib = 46068, .gpus_per_node = 4, .nodes = 1});
  EXPECT_EQ(PlanJob(Script("1B", 8), both)->product, "H100-SXM");
}

TEST(PlanJob, TheBudgetIsALimit) {
  api::TrainingJob job = Script("7B", 0);
  job.spec.training.steps = 10'000;
  const auto free = PlanJob(job, H100s(16));
  ASSERT_TRUE(free) << free.error().message;
  job.spec.budget.max_hours = *free->hours / 3;
  const auto faster = PlanJob(job, H100s(16));
  ASSERT_TRUE(faster) << faster.error().message;
  EXPECT_LE(*faster->hours, job.spec.budget.max_hours);
  EXPECT_GT(faster->gpus, free->gpus);
  EXPECT_THAT(faster->alternatives.front().why, HasSubstr("the limit is"));
  job.spec.budget.max_hours = 0.001;
  Error error = ErrorOf(job, H100s(16));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, StartsWith("OverBudget: no size keeps the limits; the nearest, "));
  job.spec.budget = {.max_cost = 100};
  error = ErrorOf(job, H100s(16));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, StartsWith("spec.budget.maxCost: the operator's catalogue has no price"));
}

TEST(PlanJob, TheFastestStopsAtMaxCountOrWhereDoublingPaysNoMore) {
  api::TrainingJob job = Script("1B", 0);
  job.spec.gpus.goal = api::Goal::kFastest;
  job.spec.gpus.max_count = 16;
  EXPECT_EQ(PlanJob(job, H100s(200))->gpus, 16);
  job.spec.gpus.max_count = 0;
  const auto plan = PlanJob(job, H100s(200));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GE(plan->gpus, 64);
  EXPECT_LE(plan->gpus, 512) << "the global batch has no more sequences";
}

TEST(PlanJob, SizesTheStateOfTheJobsOptimizer) {
  api::TrainingJob job = Script("7B", 8);
  const auto adam = PlanJob(job, H100s(4));
  ASSERT_TRUE(adam) << adam.error().message;
  job.spec.training.optimizer = {.name = api::OptimizerKind::kSgd, .momentum = 0.9};
  const auto momentum = PlanJob(job, H100s(4));
  ASSERT_TRUE(momentum) << momentum.error().message;
  job.spec.training.optimizer.momentum = 0;
  const auto none = PlanJob(job, H100s(4));
  ASSERT_TRUE(none) << none.error().message;
  ASSERT_EQ(adam->strategy, momentum->strategy);
  ASSERT_EQ(adam->strategy, none->strategy);
  EXPECT_GT(adam->bytes.optimizer, 0);
  EXPECT_EQ(momentum->bytes.optimizer, adam->bytes.optimizer / 2);
  EXPECT_EQ(none->bytes.optimizer, 0);
  EXPECT_EQ(adam->checkpoint_bytes, 84'000'000'000);
  EXPECT_EQ(momentum->checkpoint_bytes, 56'000'000'000);
  EXPECT_EQ(none->checkpoint_bytes, 28'000'000'000);
}

TEST(PlanJob, MeasurementsCorrectTheNextPlan) {
  api::TrainingJob job = Script("7B", 8);
  const auto before = PlanJob(job, H100s(4));
  ASSERT_TRUE(before) << before.error().message;
  job.status.measured = api::PlanCorrections{.states = 1.1, .activations = 0.8, .buffers = 1.2, .step_seconds = 1.5};
  const auto after = PlanJob(job, H100s(4));
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->strategy, before->strategy);
  auto near = [](int64_t bytes, double expected) {
    EXPECT_NEAR(static_cast<double>(bytes), expected, 0.01 * expected);
  };
  near(after->bytes.optimizer, 1.1 * static_cast<double>(before->bytes.optimizer));
  near(after->bytes.activations, 0.8 * static_cast<double>(before->bytes.activations));
  near(after->bytes.buffers, 1.2 * static_cast<double>(before->bytes.buffers));
  EXPECT_NEAR(*after->hours, 1.5 * *before->hours, 0.01 * *after->hours);
  EXPECT_EQ(after->corrections, *job.status.measured);
  EXPECT_THAT(after->why, HasSubstr("states x1.10, activations x0.80, buffers x1.20, step time x1.50"));
}

TEST(PlanJob, TheStatusIsSmall) {
  std::vector<ProductSupply> all;
  for (const GpuProduct& p : Catalogue::Default()->products()) {
    if (!p.Simulated()) all.push_back({.product = p.name, .nodes = 64});
  }
  const auto plan = PlanJob(Script("70B", 0), all);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LE(plan->alternatives.size(), 6u);
  EXPECT_LE(plan->advice.size(), 8u);
  size_t characters = plan->why.size();
  for (const auto& alternative : plan->alternatives) characters += alternative.why.size() + alternative.method.size();
  for (const std::string& sentence : plan->advice) characters += sentence.size();
  EXPECT_LE(characters, 4000u);
}

TEST(PlanJob, PerNodeMustDivide) {
  api::TrainingJob job = Script("1B", 6);
  job.spec.gpus.per_node = 4;
  EXPECT_THAT(ErrorOf(job, H100s(4)).message, HasSubstr("spec.gpus: on H100-SXM: GPU count 6 is not a multiple of 4"));
  job.spec.gpus.per_node = 3;
  EXPECT_EQ(PlanJob(job, H100s(4))->per_node, 3);
}

}  // namespace
}  // namespace trainyard::sizing
