#include "operator/controller/plan_memo.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

class PlanMemoTest : public testing::Test {
 protected:
  PlanMemoTest() {
    job_.meta.name = "small";
    job_.meta.uid = "u1";
    job_.meta.generation = 1;
  }
  Result<api::PlanStatus> Ask(const api::TrainingJob& job) { return memo_.Plan(job, supply_, nullptr); }

  int calls_ = 0;
  PlanMemo memo_{[this](const api::TrainingJob& job, const auto&, const auto&) -> Result<api::PlanStatus> {
    ++calls_;
    if (job.spec.gpus.count == 99) return Fail(ErrorCode::kResourceExhausted, "DoesNotFit: 99");
    api::PlanStatus plan;
    plan.gpus = job.spec.gpus.count;
    return plan;
  }};
  api::TrainingJob job_;
  std::vector<sizing::ProductSupply> supply_ = {{.product = "Simulated", .gpus_per_node = 2, .nodes = 2}};
};

TEST_F(PlanMemoTest, TheSameQuestionIsAnsweredOnce) {
  job_.spec.gpus.count = 4;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Ask(job_)->gpus, 4);
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(memo_.Made(), 1);
}

TEST_F(PlanMemoTest, ARefusalIsRememberedToo) {
  job_.spec.gpus.count = 99;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask(job_).error().message, "DoesNotFit: 99");
  EXPECT_EQ(calls_, 1);
}

TEST_F(PlanMemoTest, WhatChangesThePlanIsAskedAnew) {
  Ask(job_);
  api::TrainingJob other = job_;
  other.meta.generation = 2;
  Ask(other);
  EXPECT_EQ(calls_, 2) << "generation";
  other.spec.gpus.count = 3;
  EXPECT_EQ(Ask(other)->gpus, 3);
  EXPECT_EQ(calls_, 3) << "count";
  other.status.measured = api::PlanCorrections{.states = 1.1};
  Ask(other);
  EXPECT_EQ(calls_, 4) << "measurements";
  other.meta.uid = "u2";
  Ask(other);
  EXPECT_EQ(calls_, 5) << "another job of the same name";
  supply_[0].nodes = 3;
  Ask(other);
  EXPECT_EQ(calls_, 6) << "supply";
  supply_[0].nodes = 2;
  Ask(other);
  Ask(job_);
  EXPECT_EQ(calls_, 6) << "the earlier questions are still known";
  memo_.Forget(job_.meta.ns + "/" + job_.meta.name);
  Ask(job_);
  EXPECT_EQ(calls_, 7);
}

TEST_F(PlanMemoTest, OldQuestionsMakeRoom) {
  for (int64_t count = 1; count <= 64; ++count) {
    job_.spec.gpus.count = count;
    Ask(job_);
  }
  EXPECT_EQ(calls_, 64);
  job_.spec.gpus.count = 64;
  Ask(job_);
  EXPECT_EQ(calls_, 64);
  job_.spec.gpus.count = 1;
  Ask(job_);
  EXPECT_EQ(calls_, 65);
}

}  // namespace
}  // namespace trainyard::controller
