// The choice among sizes, products and methods, and what is said about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "operator/sizing/plan.h"

namespace trainyard::sizing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PlanRequest Ask(int64_t parameters, std::vector<std::string> products, std::vector<int64_t> counts = {}) {
  PlanRequest r;
  r.shape = *ShapeFromCount(parameters);
  for (const std::string& product : products) r.supply.push_back({.product = product});
  r.counts = std::move(counts);
  return r;
}

Plan Made(const PlanRequest& request) {
  auto plan = MakePlan(request);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

const PlanOption& Chosen(const Plan& plan) {
  EXPECT_TRUE(plan.chosen) << plan.not_chosen;
  return plan.options.at(plan.chosen.value_or(0));
}

PlanRequest Reference() {
  PlanRequest r = Ask(7'000'000'000, {"H100-SXM"}, {2, 4, 8});
  r.single_gpu_hours = 100;
  r.prices[""] = 255;
  return r;
}

TEST(Search, TheGoalDecidesBetweenTwoFourAndEight) {
  PlanRequest r = Reference();
  EXPECT_EQ(Chosen(Made(r)).gpus, 2);
  r.goal = api::Goal::kFastest;
  EXPECT_EQ(Chosen(Made(r)).gpus, 8);
  r.goal = api::Goal::kCheapest;
  r.max_hours = 30;
  EXPECT_EQ(Chosen(Made(r)).gpus, 4) << "the cheapest that meets the limit";
  r.max_hours = 20;
  EXPECT_EQ(Chosen(Made(r)).gpus, 8);
  r.max_hours.reset();
  r.goal = api::Goal::kFastest;
  r.max_cost = 31'000;
  EXPECT_EQ(Chosen(Made(r)).gpus, 4);
}

TEST(Search, LimitsThatNothingKeepsSayHowFarOffTheNearestIs) {
  PlanRequest r = Reference();
  r.max_hours = 10;
  const Plan plan = Made(r);
  EXPECT_FALSE(plan.chosen);
  EXPECT_EQ(plan.not_chosen, "no size keeps the limits; the nearest, 8 x H100-SXM, takes 15.6 h, the limit is 10.0 h");
  EXPECT_FALSE(plan.ways_out) << "it fits";
}

TEST(Search, RunnersUpSayWhyTheyLost) {
  const Plan plan = Made(Reference());
  ASSERT_GE(plan.runners_up.size(), 3u);
  EXPECT_THAT(plan.runners_up[0].why_lost, HasSubstr(" over"));
  EXPECT_EQ(plan.runners_up[1].why_lost, "4 x H100-SXM: 26.1 h sooner, but costs 1,667 more (63.75 per hour saved)");
  EXPECT_EQ(plan.runners_up[2].why_lost, "8 x H100-SXM: 39.9 h sooner, but costs 3,542 more (88.70 per hour saved)");
}

TEST(Search, CostsWithinHalfAPercentTieAndTheFasterWins) {
  PlanRequest r = Reference();
  r.supply.push_back({.product = "H200-SXM"});  // the same arithmetic and links
  r.prices = {{"H100-SXM", 255}, {"H200-SXM", 256}};
  EXPECT_EQ(Chosen(Made(r)).product, "H200-SXM") << "as fast, on as many, and nothing is computed again";
  r.counts = {2};
  r.supply = {{.product = "H100-SXM"}, {.product = "B200"}};
  const Plan probe = Made(r);
  const double slow = *probe.options[0].hours, fast = *probe.options[1].hours;
  ASSERT_LT(fast, slow);
  r.prices = {{"H100-SXM", 100}, {"B200", 100 * slow / fast * 1.004}};
  EXPECT_EQ(Chosen(Made(r)).product, "B200");
  r.prices["B200"] = 100 * slow / fast * 1.006;
  EXPECT_EQ(Chosen(Made(r)).product, "H100-SXM");
}

TEST(Search, WithoutPricesTheCheapestTakesTheFewestGpuHours) {
  PlanRequest r = Ask(1'000'000'000, {"L40S", "H100-SXM"});
  r.tokens = 1e11;
  const Plan plan = Made(r);
  EXPECT_EQ(Chosen(plan).gpus, 1);
  EXPECT_EQ(Chosen(plan).product, "H100-SXM");
  r.prices = {{"L40S", 1}, {"H100-SXM", 10}};
  EXPECT_EQ(Chosen(Made(r)).product, "L40S");
  r.prices.erase("L40S");
  EXPECT_EQ(Chosen(Made(r)).product, "H100-SXM") << "what has no price cannot be compared";
}

TEST(Search, TheFastestStopsWhereDoublingGainsLittle) {
  PlanRequest r = Ask(1'000'000'000, {"L40S"});  // one shared network port per node
  r.goal = api::Goal::kFastest;
  r.tokens = 1e11;
  const Plan plan = Made(r);
  ASSERT_TRUE(plan.range);
  EXPECT_EQ(plan.range->minimum, 1);
  EXPECT_LE(Chosen(plan).gpus, plan.range->maximum);
  EXPECT_THAT(plan.range->why_maximum, AnyOf(HasSubstr(" gains "), HasSubstr("the global batch")));
  // Every doubling up to there gained 1.5, the next one does not.
  PlanRequest sizes = r;
  sizes.counts = {plan.range->maximum / 2, plan.range->maximum, 2 * plan.range->maximum};
  if (sizes.counts[0] >= 1 && sizes.counts[2] <= 512) {
    const Plan three = Made(sizes);
    EXPECT_GE(*three.options[0].step_seconds / *three.options[1].step_seconds, 1.5);
    EXPECT_LT(*three.options[1].step_seconds / *three.options[2].step_seconds, 1.5);
  }
  r.most_gpus = 4;
  EXPECT_EQ(Chosen(Made(r)).gpus, 4) << "a limit of the user stands for the rule";
}

TEST(Search, RecomputationIsTakenOnlyWhereItPays) {
  // With four GPUs the activations fit; with two they must be computed again.
  PlanRequest r = Ask(7'000'000'000, {"H100-SXM"}, {2, 4});
  const Plan plan = Made(r);
  EXPECT_EQ(plan.options[0].checkpointing, Checkpointing::kFull);
  EXPECT_EQ(plan.options[1].checkpointing, Checkpointing::kNone);
  EXPECT_GT(*plan.options[0].step_seconds, 2 * *plan.options[1].step_seconds);
}

TEST(Search, CopiesOfTheStateArePlannedWhereTheNetworkIsSlow) {
  PlanRequest r = Ask(7'000'000'000, {"H100-SXM"}, {16});
  // Fast links in the node, one port of 100 Gb/s for all of it.
  auto slow = Catalogue::FromYaml("products: [{name: H100-SXM, networkGBps: 1.5625}]", "slow");
  ASSERT_TRUE(slow) << slow.error().message;
  r.catalogue = std::make_shared<const Catalogue>(*slow);
  const Plan plan = Made(r);
  EXPECT_EQ(plan.options[0].strategy, api::Strategy::kFsdp) << plan.options[0].why;
  EXPECT_EQ(plan.options[0].replicas, 2);
  EXPECT_EQ(plan.options[0].shard_ranks, 8);
  EXPECT_THAT(MethodOf(plan.options[0]), StartsWith("HSDP"));
  r.strategy = api::Strategy::kHsdp;
  r.bundled_trainer = true;
  EXPECT_EQ(Made(r).options[0].replicas, 2) << "our trainer runs them too";
}

TEST(Search, TheRangeEndsAtTheBoundAndNotAtADoublingOfTheLeast) {
  PlanRequest r = Ask(8'000'000'000, {"RTX-3090"});
  r.tokens = 1e12;
  r.goal = api::Goal::kFastest;
  const Plan plan = Made(r);
  ASSERT_TRUE(plan.range && plan.chosen);
  EXPECT_EQ(plan.options[*plan.chosen].gpus, 512) << plan.range->why_maximum;
  EXPECT_EQ(plan.range->maximum, 512);
}

TEST(Search, OfTwoBrokenLimitsTheOneBrokenWorstSaysWhatIsNearest) {
  PlanRequest r = Ask(7'000'000'000, {"H100-SXM"}, {4, 8});
  r.single_gpu_hours = 5;
  r.prices[""] = 1;
  r.max_hours = 5;
  r.max_cost = 5;
  const Plan plan = Made(r);
  EXPECT_FALSE(plan.chosen);
  EXPECT_THAT(plan.not_chosen, HasSubstr("the nearest, 4 x H100-SXM, costs 5.88")) << plan.not_chosen;
}

TEST(Search, PoorScalingIsAWarning) {
  PlanRequest r = Ask(125'000'000, {"RTX-4090"}, {8});
  r.global_batch = 56;
  r.micro_batch = 7;
  r.sequence_length = 500;
  const Plan plan = Made(r);
  ASSERT_FALSE(plan.warnings.empty());
  EXPECT_THAT(plan.warnings[0], StartsWith("8 x RTX-4090 over PCIe without peer-to-peer copies: "));
  EXPECT_THAT(plan.warnings[0], HasSubstr("x, not 8x."));
  r.global_batch = 560;
  EXPECT_TRUE(Made(r).warnings.empty()) << Made(r).warnings[0];
}

TEST(Search, AdviceNamesTheFiguresOfTwoFourAndEight) {
  const Plan plan = Made(Reference());
  ASSERT_GE(plan.advice.size(), 4u);
  EXPECT_THAT(plan.advice[0], StartsWith("Two GPUs are the easiest to debug: 1.8x one GPU at 90 %, "));
  EXPECT_THAT(plan.advice[1], StartsWith("Four GPUs leave room for batch and sequence: 3.4x one GPU at 85 %, "));
  EXPECT_THAT(plan.advice[2],
              StartsWith("Eight GPUs suit one server whose NVLink joins them all: 6.4x one GPU at 80 %, "));
  EXPECT_THAT(plan.advice[3], HasSubstr("x 2 ranks = 512 sequences"));
}

TEST(Search, ABatchThatCannotBeSplitNamesTheNearest) {
  PlanRequest r = Ask(1'000'000'000, {"H100-SXM"}, {3});
  Plan plan = Made(r);
  EXPECT_EQ(plan.options[0].effective_batch, 513);
  EXPECT_THAT(plan.warnings,
              Contains(HasSubstr("3 ranks with micro batch 1 cannot take exactly 512 sequences per step; "
                                 "possible are 510 and 513.")));
  r.bundled_trainer = true;
  plan = Made(r);
  EXPECT_EQ(plan.options[0].effective_batch, 512);
  EXPECT_EQ(plan.options[0].padding, 1);
  EXPECT_TRUE(plan.warnings.empty());
  EXPECT_THAT(plan.advice, Contains(StartsWith("A step takes 512 sequences")));
  // Of several sizes, one that splits it exactly is preferred.
  r = Ask(1'000'000'000, {"H100-SXM"}, {3, 4});
  r.goal = api::Goal::kCheapest;
  EXPECT_EQ(Chosen(Made(r)).gpus, 4);
}

TEST(Search, WhatDoesNotFitSaysByHowMuchAndTheWaysOut) {
  const Plan plan = Made(Ask(34'000'000'000, {"RTX-4090"}, {1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_FALSE(plan.chosen);
  ASSERT_TRUE(plan.ways_out);
  EXPECT_THAT(plan.ways_out->too_big,
              StartsWith("34B as FSDP with full activation checkpointing on 8 x RTX-4090 needs "));
  EXPECT_THAT(plan.ways_out->too_big, HasSubstr(" usable per GPU, "));
  EXPECT_THAT(plan.ways_out->too_big, HasSubstr("optimizer states take most of it, "));
  ASSERT_FALSE(plan.ways_out->ways.empty());
  EXPECT_LE(plan.ways_out->ways.size(), 3u);
  for (const WayOut& way : plan.ways_out->ways) {
    EXPECT_TRUE(way.option.fits) << way.what;
    EXPECT_THAT(way.what, HasSubstr(" needs "));
  }
}

TEST(Search, ParallelDegreesArePlannedAndSaidNotToRunYet) {
  PlanRequest r = Ask(70'000'000'000, {"H100-SXM"}, {64});
  r.tensor_parallel = 8;
  r.pipeline_parallel = 2;
  const Plan plan = Made(r);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("neither tensor nor pipeline parallelism yet")));
  EXPECT_EQ(plan.options[0].accumulation, 128) << "four data-parallel ranks";
  r.counts = {24};
  auto refused = MakePlan(r);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("GPU count 24 is not a multiple of tensor parallel 8 x pipeline parallel 2"));
}

TEST(Search, BadLimits) {
  auto error = [](const PlanRequest& r) {
    auto plan = MakePlan(r);
    return plan ? std::string("accepted") : plan.error().message;
  };
  PlanRequest r = Ask(7'000'000'000, {"H100-SXM"});
  r.max_hours = 10;
  EXPECT_THAT(error(r), HasSubstr("a limit of hours needs"));
  r.tokens = 1e9;
  r.max_cost = 10;
  EXPECT_THAT(error(r), HasSubstr("a limit of cost needs prices"));
  r.prices[""] = std::nan("");
  EXPECT_THAT(error(r), HasSubstr("a price must be"));
  r.prices[""] = 1;
  r.max_hours = std::nan("");
  EXPECT_THAT(error(r), HasSubstr("must be positive numbers"));
  r.max_hours.reset();
  r.max_cost = -1;
  EXPECT_THAT(error(r), HasSubstr("must be positive numbers"));
  r.max_cost.reset();
  r.tensor_parallel = int64_t{1} << 40;
  EXPECT_THAT(error(r), HasSubstr("parallel degrees must be between"));
}

// Whatever is asked, what is chosen fits, keeps the limits, and nothing else that does is better by the goal.
TEST(Search, TheChoiceIsTheBest) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> all = {"RTX-4090", "L40S", "A100-80GB-SXM", "H100-SXM", "H100-PCIe", "H200-SXM"};
  int chosen = 0;
  for (int i = 0; i < 60; ++i) {
    PlanRequest r = Ask(static_cast<int64_t>(std::pow(10, 8 + 2.5 * static_cast<double>(random() % 100) / 100)), {});
    for (const std::string& product : all) {
      if (random() % 2 == 0) r.supply.push_back({.product = product});
    }
    if (r.supply.empty()) r.supply.push_back({.product = "H100-SXM"});
    r.counts = {1, 2, 4, 8, 16, 32};
    r.tokens = 1e10;
    for (const ProductSupply& s : r.supply) r.prices[s.product] = 0.5 + static_cast<double>(random() % 100) / 20;
    r.goal = random() % 2 == 0 ? api::Goal::kCheapest : api::Goal::kFastest;
    if (random() % 2 == 0) r.max_hours = std::pow(10, static_cast<double>(random() % 40) / 10);
    const Plan plan = Made(r);
    if (!plan.chosen) continue;
    ++chosen;
    const PlanOption& best = Chosen(plan);
    EXPECT_TRUE(best.fits);
    if (r.max_hours) {
      EXPECT_LE(*best.hours, *r.max_hours);
    }
    for (const PlanOption& o : plan.options) {
      if (!o.fits || (r.max_hours && *o.hours > *r.max_hours)) continue;
      if (r.goal == api::Goal::kCheapest) {
        EXPECT_LE(*best.cost, 1.0051 * *o.cost)
            << best.product << " " << best.gpus << " / " << o.product << " " << o.gpus;
      } else {
        EXPECT_LE(*best.hours, 1.0051 * *o.hours) << best.product << " " << best.gpus << " / " << o.product;
      }
    }
  }
  EXPECT_GT(chosen, 10);
}

}  // namespace
}  // namespace trainyard::sizing
