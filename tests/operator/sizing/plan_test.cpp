#include "operator/sizing/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/scaling.h"

namespace trainyard::sizing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanRequest Ask(int64_t parameters, const std::string& product, std::vector<int64_t> counts = {}) {
  PlanRequest r;
  r.shape = *ShapeFromCount(parameters);
  r.supply = {{.product = product}};
  r.counts = std::move(counts);
  return r;
}

TEST(Plan, TheExampleOfTheReference) {
  PlanRequest r = Ask(7'000'000'000, "H100-SXM", {2, 4, 8});
  r.single_gpu_hours = 100;
  r.prices[""] = 255;
  auto plan = MakePlan(r);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->state_bytes, 112'000'000'000);
  EXPECT_EQ(plan->minimum_state_only, 2);
  const double efficiency[] = {0.90, 0.85, 0.80};
  const double hours[] = {55.6, 29.4, 15.6};
  const double cost[] = {28'333, 30'000, 31'875};
  const double whole_hours[] = {56, 29, 16};
  const double whole_cost[] = {28'560, 29'580, 32'640};
  r.round_hours = true;
  auto rounded = MakePlan(r);
  ASSERT_EQ(plan->options.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const PlanOption& o = plan->options[i];
    EXPECT_TRUE(o.fits) << o.why;
    EXPECT_NEAR(o.efficiency, efficiency[i], 1e-9);
    EXPECT_GE(o.physical_efficiency, o.efficiency);
    EXPECT_NEAR(*o.hours, hours[i], 0.05);
    EXPECT_NEAR(*o.cost, cost[i], 1);
    EXPECT_EQ(*rounded->options[i].hours, whole_hours[i]);
    EXPECT_DOUBLE_EQ(*rounded->options[i].cost, whole_cost[i]);
    EXPECT_EQ(o.checkpoint_bytes, 84'000'000'000);
  }
}

TEST(Plan, SlowerGpusByTheirOwnHoursOrByTheCatalogue) {
  PlanRequest r = Ask(7'000'000'000, "A100-80GB-SXM", {4});
  r.single_gpu_hours = 250;  // each 2.5 times slower than the 100 hours of an H100
  r.prices["A100"] = 102;    // an alias
  auto own = MakePlan(r);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_NEAR(*own->options[0].hours, 73.5, 0.05);
  EXPECT_NEAR(*own->options[0].cost, 30'000, 15);

  // The hours of the first product, scaled by what the catalogue says: the rounded figures of the reference.
  r.supply = {{.product = "H100-SXM"}, {.product = "A100-80GB-SXM"}};
  r.single_gpu_hours = 100;
  r.round_hours = true;
  auto scaled = MakePlan(r);
  ASSERT_EQ(scaled->options.size(), 2u);
  EXPECT_EQ(*scaled->options[1].hours, 75);
  EXPECT_EQ(*scaled->options[1].cost, 30'600);
  EXPECT_FALSE(scaled->options[0].cost) << "the H100 has no price";
}

// The tables of the rule of thumb, 16 bytes per parameter.
TEST(Plan, StateOnlyTables) {
  struct Row {
    int64_t parameters;
    const char* product;
    int64_t count;
  };
  const Row rows[] = {
      {1'000'000'000, "RTX-4090", 1},      {1'000'000'000, "RTX-5090", 1},  {3'000'000'000, "A100-80GB-SXM", 1},
      {7'000'000'000, "A100-80GB-SXM", 2}, {8'000'000'000, "H100-SXM", 2},  {13'000'000'000, "A100-80GB-SXM", 4},
      {34'000'000'000, "H100-SXM", 8},     {70'000'000'000, "H200-SXM", 8}, {70'000'000'000, "H100-SXM", 16}};
  for (const Row& row : rows) {
    auto plan = MakePlan(Ask(row.parameters, row.product));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->state_bytes, 16 * row.parameters);
    EXPECT_EQ(plan->minimum_state_only, row.count) << row.parameters << " on " << row.product;
    if (plan->minimum_full) {
      EXPECT_GE(*plan->minimum_full, row.count);
    }
  }
}

TEST(Plan, SaysWhereTheStateFitsAndTrainingDoesNot) {
  auto plan = MakePlan(Ask(70'000'000'000, "H200-SXM"));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->minimum_state_only, 8);
  EXPECT_EQ(plan->minimum_full, 16);
  EXPECT_EQ(plan->minimums[0].difference,
            "State fits, training does not: 70B on 8 x H200-SXM needs 179.0 GiB of 140.4 GiB per GPU; 16 fit.");
  EXPECT_FALSE(plan->options[0].fits);
  EXPECT_TRUE(plan->options[0].state_fits);
  EXPECT_THAT(plan->options[0].why, HasSubstr("does not fit: FSDP"));
  EXPECT_TRUE(plan->options[1].fits);
  // The range that was expected of it.
  const double gib = static_cast<double>(plan->options[0].bytes.total) / (1 << 30);
  EXPECT_GE(gib, 162);
  EXPECT_LE(gib, 180);
}

TEST(Plan, SimplestStrategyFirst) {
  auto strategies = [](int64_t parameters, int64_t n) {
    return MakePlan(Ask(parameters, "H100-SXM", {n}))->options[0].strategy;
  };
  EXPECT_EQ(strategies(125'000'000, 8), api::Strategy::kDdp);
  EXPECT_EQ(strategies(3'000'000'000, 8), api::Strategy::kZero1);
  EXPECT_EQ(strategies(7'000'000'000, 4), api::Strategy::kZero2);
  EXPECT_EQ(strategies(7'000'000'000, 2), api::Strategy::kFsdp);
  EXPECT_EQ(strategies(7'000'000'000, 1), api::Strategy::kDdp);
}

TEST(Plan, AStrategyThatIsAskedForIsKept) {
  PlanRequest r = Ask(125'000'000, "H100-SXM", {4});
  r.strategy = api::Strategy::kFsdp;
  EXPECT_EQ(MakePlan(r)->options[0].strategy, api::Strategy::kFsdp);
}

TEST(Plan, MicroBatchIsTheLargestThatFitsAndDividesTheWork) {
  PlanRequest r = Ask(1'000'000'000, "H100-SXM", {1, 3, 8});
  r.micro_batch = 0;
  auto plan = MakePlan(r);
  ASSERT_TRUE(plan) << plan.error().message;
  for (const PlanOption& o : plan->options) {
    EXPECT_TRUE(o.fits) << o.why;
    EXPECT_EQ(512 % o.micro_batch, 0);
    EXPECT_GE(o.micro_batch * o.accumulation * o.gpus, 512);
    EXPECT_LE(o.micro_batch * o.accumulation * o.gpus, 512 * 1.2);
    EXPECT_LE(o.micro_batch * 4096, 16'384);
  }
  EXPECT_EQ(plan->options[2].micro_batch, 4);
  EXPECT_EQ(plan->options[2].accumulation, 16);
}

TEST(Plan, ProposedCountsDivideANode) {
  EXPECT_THAT(ProposedCounts(8, 32), ElementsAre(1, 2, 4, 8, 16, 24, 32));
  EXPECT_THAT(ProposedCounts(4, 12), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(ProposedCounts(6, 12), ElementsAre(1, 2, 3, 6, 12));
  EXPECT_THAT(ProposedCounts(1, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(ProposedCounts(8, 5), ElementsAre(1, 2, 4));
}

TEST(Plan, NodesGetEqualShares) {
  EXPECT_EQ(*PerNodeFor(4, 8, 0), 4);
  EXPECT_EQ(*PerNodeFor(8, 8, 0), 8);
  EXPECT_EQ(*PerNodeFor(12, 8, 0), 6);
  EXPECT_EQ(*PerNodeFor(16, 8, 0), 8);
  EXPECT_EQ(*PerNodeFor(7, 4, 0), 1);
  EXPECT_EQ(*PerNodeFor(9, 8, 0), 3);
  EXPECT_EQ(*PerNodeFor(3, 2, 0), 1);
  EXPECT_EQ(*PerNodeFor(4, 8, 2), 2);
  EXPECT_THAT(PerNodeFor(6, 8, 4).error().message, HasSubstr("6 is not a multiple of 4 per node"));
  EXPECT_THAT(PerNodeFor(16, 4, 8).error().message, HasSubstr("8 is more than the 4 that a node has"));
}

TEST(Plan, WithoutAProductEveryRealOneIsShownAtItsSmallestCount) {
  PlanRequest r = Ask(7'000'000'000, "H100-SXM");
  r.supply.clear();
  auto plan = MakePlan(r);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->minimums.size(), Catalogue::Default()->products().size() - 1);
  EXPECT_EQ(plan->minimum_full, 1);
  for (const PlanOption& o : plan->options) EXPECT_TRUE(o.fits) << o.product;
}

TEST(Plan, MemoryOfTheLabelWinsOverTheCatalogue) {
  PlanRequest r = Ask(1'000'000'000, "H100-SXM", {1});
  r.supply[0].memory_mib = 10'000;
  EXPECT_FALSE(MakePlan(r)->options[0].fits);
}

TEST(Plan, TokensGiveHours) {
  PlanRequest r = Ask(7'000'000'000, "H100-SXM", {8});
  r.tokens = 1e12;
  r.prices[""] = 2;
  auto plan = MakePlan(r);
  ASSERT_TRUE(plan) << plan.error().message;
  // 29,491 h for 6 P per token on one GPU; attention adds 12 L s w = 12 * 32 * 4096 * 4096 to it.
  EXPECT_NEAR(*plan->options[0].hours, 29'491 * (1 + 12.0 * 32 * 4096 * 4096 / 42e9) / (8 * 0.8), 1);
  EXPECT_NEAR(*plan->options[0].cost, *plan->options[0].hours * 16, 1e-6);
}

TEST(Plan, LongSequencesTakeTheTimeOfTheirAttention) {
  PlanRequest r = Ask(7'000'000'000, "H200-SXM", {64});
  r.tokens = 1e9;
  r.global_batch = 64;
  r.checkpointing = {Checkpointing::kFull};
  const double usual = *MakePlan(r)->options[0].hours;
  r.sequence_length = 131'072;
  // 8 P and 16 L s w a token; more tokens at once sustain a little more.
  auto flops = [](double s) { return 56e9 + 16.0 * 32 * s * 4096; };
  const double longer = flops(131'072) / flops(4096) * MfuAt(1, 4096) / MfuAt(1, 131'072);
  EXPECT_NEAR(*MakePlan(r)->options[0].hours / usual, longer, 0.03 * longer);
}

TEST(Plan, Fp32TakesTwiceTheTimeOfBf16) {
  PlanRequest r = Ask(1'000'000'000, "H100-SXM", {1});
  r.tokens = 1e9;
  const double bf16 = *MakePlan(r)->options[0].hours;
  r.precision = api::Precision::kFp32;
  EXPECT_NEAR(*MakePlan(r)->options[0].hours, 2 * bf16, 1e-6 * bf16);
}

TEST(Plan, ModelParallelGpusCommunicateToo) {
  PlanRequest r = Ask(7'000'000'000, "H100-SXM", {8});
  r.tensor_parallel = 8;
  EXPECT_GT(MakePlan(r)->options[0].bytes.overhead, int64_t{2} << 30);  // 0.75 GiB of the driver, 1.5 GiB of NCCL
}

std::string ErrorOf(const PlanRequest& r) {
  auto plan = MakePlan(r);
  return plan ? "accepted" : plan.error().message;
}

TEST(Plan, BadInput) {
  PlanRequest r = Ask(7'000'000'000, "H100-SMX");
  EXPECT_THAT(ErrorOf(r), HasSubstr("'H100-SMX' is no known GPU product; the nearest names are H100-SXM"));
  r = Ask(7'000'000'000, "H100-SXM", {16});
  r.global_batch = 8;
  EXPECT_THAT(ErrorOf(r), HasSubstr("GPU count 16 is more than the global batch of 8 sequences"));
  r = Ask(7'000'000'000, "H100-SXM", {0});
  EXPECT_THAT(ErrorOf(r), HasSubstr("GPU count 0"));
  r = Ask(7'000'000'000, "H100-SXM");
  r.prices[""] = 255;
  EXPECT_THAT(ErrorOf(r), HasSubstr("a price gives a cost only together with"));
  r.single_gpu_hours = -1;
  EXPECT_THAT(ErrorOf(r), HasSubstr("positive"));
  r.single_gpu_hours = 100;
  r.prices["B2000"] = 1;
  EXPECT_THAT(ErrorOf(r), HasSubstr("B2000"));
  r = Ask(7'000'000'000, "H100-SXM");
  r.sequence_length = 0;
  EXPECT_THAT(ErrorOf(r), HasSubstr("sequence length 0"));
  r = Ask(7'000'000'000, "H100-SXM");
  r.micro_batch = 513;
  EXPECT_THAT(ErrorOf(r), HasSubstr("micro batch 513"));
}

TEST(Plan, NothingFitsIsAnAnswer) {
  PlanRequest r = Ask(1'000'000'000'000, "L4");
  auto plan = MakePlan(r);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->minimum_full);
  EXPECT_EQ(plan->minimum_state_only, 664);
  EXPECT_THAT(plan->minimums[0].difference, HasSubstr("more than the global batch"));
}

}  // namespace
}  // namespace trainyard::sizing
