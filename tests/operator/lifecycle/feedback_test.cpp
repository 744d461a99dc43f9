// What a run measures corrects the plan of the next attempt, and of no running one; and plans are made for a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;

// Counts what is asked of the planner.
class Counting : public Planner {
 public:
  Result<api::PlanStatus> Plan(const api::TrainingJob& job, const std::vector<sizing::ProductSupply>& supply,
                               std::shared_ptr<const sizing::Catalogue> catalogue) override {
    ++calls;
    return sizing::PlanJob(job, supply, std::move(catalogue));
  }
  int calls = 0;
};

// Rank 0 after `step` steps that held `factor` times what the plan says.
api::Progress Measured(const api::PlanStatus& plan, int64_t step, double factor) {
  const auto times = [factor](int64_t bytes) { return static_cast<int64_t>(factor * static_cast<double>(bytes)); };
  const api::PlanBytes& b = plan.bytes;
  return {.step = step,
          .steps = 400,
          .step_seconds = 0.5,
          .trainer_phase = "Training",
          .memory = api::MemoryStatus{.params = b.weights + times(b.buffers),
                                      .gradients = times(b.gradients),
                                      .master = times(b.master),
                                      .optimizer = times(b.optimizer),
                                      .buffers = 0,
                                      .activations_peak = times(b.activations + b.logits)}};
}

void Restart(Scenario& s) {
  s.Exit(0, 137);
  s.Steps();
  s.in.now += Milliseconds(600'000);
  s.Start();
}

TEST(Feedback, CorrectsThePlanOfTheNextAttempt) {
  Scenario s;
  s.Start();
  const api::PlanStatus first = *s.status().plan;
  ASSERT_GT(first.bytes.optimizer, 0);
  EXPECT_EQ(first.corrections, api::PlanCorrections());
  s.in.progress = Measured(first, 50, 1.2);
  s.in.progress_attempt = 1;
  s.Steps();
  ASSERT_TRUE(s.status().measured);
  EXPECT_DOUBLE_EQ(s.status().measured->states, 1.2);
  EXPECT_DOUBLE_EQ(s.status().measured->activations, 1.2);
  EXPECT_DOUBLE_EQ(s.status().measured->buffers, 1.2);
  EXPECT_EQ(s.status().plan->bytes_per_gpu, first.bytes_per_gpu) << "the running attempt keeps its plan";

  Restart(s);
  ASSERT_EQ(s.status().attempt, 2);
  const api::PlanStatus second = *s.status().plan;
  EXPECT_NEAR(static_cast<double>(second.bytes.optimizer), 1.2 * static_cast<double>(first.bytes.optimizer), 2);
  EXPECT_EQ(second.corrections, *s.status().measured);
  EXPECT_THAT(second.why, HasSubstr("states x1.20"));
  EXPECT_EQ(second.gpus, first.gpus);
  EXPECT_EQ(second.strategy, first.strategy);

  // The same bytes again: the estimate has them already, and stays.
  s.in.progress = Measured(second, 50, 1.0);
  s.in.progress_attempt = 2;
  s.in.now += s.options.progress_interval;
  s.Steps();
  EXPECT_DOUBLE_EQ(s.status().measured->states, 1.2);
}

// What the engine holds of an FP32 plan under FSDP, to the byte (planned_memory_test): the shard is its master copy,
// full weights are gathered ones, and the highest value of gradients has those on their way.
TEST(Feedback, APlanThatWasRightStaysAsItIs) {
  Scenario s;
  s.Start();
  api::PlanStatus& plan = *s.in.job.status.plan;
  plan.strategy = api::ToString(api::Strategy::kFsdp);
  plan.bytes = {.weights = 4'000, .gradients = 4'000, .master = 0, .optimizer = 8'000, .buffers = 3'000};
  s.in.progress = {.step = 50,
                   .steps = 400,
                   .trainer_phase = "Training",
                   .memory = api::MemoryStatus{
                       .params = 2'000, .gradients = 6'000, .master = 4'000, .optimizer = 8'000, .buffers = 1'000}};
  s.in.progress_attempt = 1;
  s.Steps();
  const api::PlanCorrections measured = s.status().measured.value_or(api::PlanCorrections());
  EXPECT_DOUBLE_EQ(measured.states, 1);
  EXPECT_DOUBLE_EQ(measured.buffers, 1);
}

TEST(Feedback, LearnsAlsoWhereTheOptimizerKeepsNothing) {
  Scenario s;
  s.in.job.spec.training.optimizer = {.name = api::OptimizerKind::kSgd};
  s.Start();
  ASSERT_EQ(s.status().plan->bytes.optimizer, 0);
  s.in.progress = Measured(*s.status().plan, 50, 1.2);
  s.in.progress_attempt = 1;
  s.Steps();
  ASSERT_TRUE(s.status().measured);
  EXPECT_DOUBLE_EQ(s.status().measured->activations, 1.2);
}

TEST(Feedback, IsBounded) {
  Scenario s;
  s.Start();
  s.in.progress = Measured(*s.status().plan, 50, 40);
  s.in.progress_attempt = 1;
  s.Steps();
  EXPECT_DOUBLE_EQ(s.status().measured->states, 2);
  s.in.progress = Measured(*s.status().plan, 60, 0.01);
  s.in.now += s.options.progress_interval;
  s.Steps();
  EXPECT_DOUBLE_EQ(s.status().measured->states, 0.5);
}

TEST(Feedback, NeverRefusesWhatWouldBeTriedWithoutIt) {
  Scenario s;
  s.Start();
  const api::PlanStatus first = *s.status().plan;
  for (api::NodeSnapshot& node : s.in.nodes) {
    // Just enough for the plan as it is, with the 5 % that are kept back.
    const int64_t mib = first.bytes_per_gpu / (1024 * 1024);
    node.labels["nvidia.com/gpu.memory"] = std::to_string(mib + mib / 10);
  }
  s.in.progress = Measured(first, 50, 2);
  s.in.progress_attempt = 1;
  s.Steps();
  Restart(s);
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_EQ(s.Phase(), "Running") << s.status().reason;
}

TEST(Planning, APlanIsMadeOncePerGeneration) {
  Scenario s;
  Counting planner;
  s.in.planner = &planner;
  s.Start();
  EXPECT_EQ(planner.calls, 1);
  for (int i = 0; i < 20; ++i) {
    s.in.now += Milliseconds(60'000);
    s.Steps();
  }
  EXPECT_EQ(planner.calls, 1) << "a running job";
  Restart(s);
  EXPECT_EQ(planner.calls, 1) << "another attempt of the same generation, of which nothing was measured";
  s.in.job.spec.gpus.count = 4;
  s.Edit();
  s.Step();
  EXPECT_GT(planner.calls, 1) << "a new generation";
}

TEST(Planning, ALimitThatNothingKeepsIsOverBudget) {
  Scenario s;
  for (api::NodeSnapshot& node : s.in.nodes) {
    node.labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}, {"nvidia.com/gpu.memory", "81559"}};
  }
  s.in.job.spec.budget.max_hours = 1e-6;
  s.Steps();
  EXPECT_EQ(s.ConditionReason(kPlanned), "False/OverBudget");
  EXPECT_THAT(s.status().reason, testing::StartsWith("OverBudget: no size keeps the limits"));
  EXPECT_FALSE(s.status().placement);
}

}  // namespace
}  // namespace trainyard::lifecycle
