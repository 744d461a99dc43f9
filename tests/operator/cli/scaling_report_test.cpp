#include "operator/cli/run/scaling_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

// A size whose step is the sum of its parts; 1,024 tokens a step.
SizeReport Size(int64_t gpus, double data, double compute, double communication, double imbalance, double optimizer,
                int64_t micro_batches = 12) {
  SizeReport s;
  s.gpus = gpus;
  s.micro_batches = micro_batches;
  s.data = data;
  s.compute = compute;
  s.communication = communication;
  s.imbalance = imbalance;
  s.optimizer = optimizer;
  s.step_seconds = data + compute + communication + imbalance + optimizer;
  s.tokens_per_second = 1024 / s.step_seconds;
  return s;
}

const SizeReport kBase = Size(1, 0.001, 0.090, 0, 0, 0.009);

TEST(Diagnose, SaysNothingWhereSpeedGrows) {
  const Diagnosis d = Diagnose(kBase, Size(4, 0.0005, 0.0225, 0.001, 0.0005, 0.0023));
  EXPECT_NEAR(d.efficiency, 0.1 / 4 / 0.0268, 1e-9);
  EXPECT_EQ(d.cause, Cause::kNone);
  EXPECT_EQ(d.text, "");
  EXPECT_EQ(Diagnose(kBase, kBase).cause, Cause::kNone);
}

TEST(Diagnose, DoubtsABaseThatWasDisturbed) {
  const Diagnosis d = Diagnose(Size(1, 0.001, 0.330, 0, 0, 0.009), Size(2, 0.0005, 0.0100, 0.001, 0, 0.0005));
  EXPECT_EQ(d.cause, Cause::kNone);
  EXPECT_THAT(d.text, AllOf(HasSubstr("1417 % is more than there is to gain: the steps with 1 were disturbed"),
                            HasSubstr("quiet machine")));
  EXPECT_EQ(Diagnose(kBase, Size(2, 0.0004, 0.040, 0.001, 0, 0.004)).text, "") << "a tenth above happens";
}

TEST(Diagnose, NamesWhatTakesTheTime) {
  const auto two = [](double data, double compute, double communication, double imbalance, double optimizer,
                      int64_t micro_batches = 12) {
    return Diagnose(kBase, Size(2, data, compute, communication, imbalance, optimizer, micro_batches));
  };
  const Diagnosis data = two(0.030, 0.045, 0.004, 0.001, 0.0045);
  EXPECT_EQ(data.cause, Cause::kData);
  EXPECT_THAT(data.lost.at(Cause::kData), DoubleNear(0.0295, 1e-9));
  EXPECT_THAT(data.text, AllOf(HasSubstr("data: ranks wait for it 29.5 of 84.5 ms per step"), HasSubstr("volume")));
  const Diagnosis communication = two(0.001, 0.045, 0.040, 0.001, 0.0045);
  EXPECT_EQ(communication.cause, Cause::kCommunication);
  EXPECT_THAT(communication.text, AllOf(HasSubstr("40.0 of 91.5 ms"), HasSubstr("microBatchSize")));
  EXPECT_EQ(two(0.001, 0.090, 0.002, 0.001, 0.0045).cause, Cause::kCompute);
  EXPECT_EQ(two(0.001, 0.045, 0.002, 0.001, 0.030).cause, Cause::kOptimizer);

  SizeReport slow = Size(2, 0.001, 0.045, 0.002, 0.030, 0.0045);
  slow.slowest_rank = 1;
  slow.slowest_excess = 0.4;
  const Diagnosis imbalance = Diagnose(kBase, slow);
  EXPECT_EQ(imbalance.cause, Cause::kImbalance);
  EXPECT_THAT(imbalance.text, HasSubstr("rank 1 computes 40 % longer than the mean"));
}

// Four micro-batches on three ranks: two rounds, of whose six places two are empty.
TEST(Diagnose, MicroBatchesThatDoNotDivideAreNotCalledSlowCompute) {
  const Diagnosis d = Diagnose(Size(1, 0, 0.100, 0, 0, 0, 4), Size(3, 0, 0.050, 0, 0, 0, 4));
  EXPECT_EQ(d.cause, Cause::kRounding);
  EXPECT_NEAR(d.lost.at(Cause::kRounding), 0.050 / 3, 1e-9);
  EXPECT_NEAR(d.lost.at(Cause::kCompute), 0, 1e-9);
  EXPECT_THAT(d.text, HasSubstr("4 micro-batches do not divide among 3 ranks, so 33 % of the compute is empty"));
}

std::string Log(int64_t steps, int ranks) {
  std::string text;
  for (int64_t step = 1; step <= steps; ++step) {
    // The first ten are slow.
    const double scale = step <= 10 ? 5 : 1;
    nlohmann::json line = {{"step", step},
                           {"loss", 5 - 0.01 * static_cast<double>(step)},
                           {"tokens", 1000},
                           {"stepSeconds", 0.1 * scale},
                           {"optimizerSeconds", 0.01 * scale}};
    if (step % 10 == 0) {
      line["ranks"] = {{"dataSeconds", std::vector<double>(ranks, 0.02)},
                       {"computeSeconds", {0.6, 0.8}},
                       {"communicationSeconds", {0.3, 0.1}}};
    }
    text += line.dump() + "\n";
  }
  return text;
}

TEST(ReadStepLog, TakesTheMeansAfterTheWarmUp) {
  const auto size = ReadStepLog(Log(35, 2), 2, 4);
  ASSERT_TRUE(size) << size.error().message;
  EXPECT_EQ(size->steps, 20) << "from 11 to 30, for which the ranks gave figures";
  EXPECT_NEAR(size->step_seconds, 0.1, 1e-12);
  EXPECT_NEAR(size->tokens_per_second, 10'000, 1e-6);
  EXPECT_NEAR(size->data, 0.002, 1e-12);
  EXPECT_NEAR(size->compute, 0.07, 1e-12);
  EXPECT_NEAR(size->communication, 0.01, 1e-12) << "what the slowest rank waits";
  EXPECT_NEAR(size->imbalance, 0.01, 1e-12) << "the mean wait less that";
  EXPECT_NEAR(size->optimizer, 0.01, 1e-12);
  EXPECT_NEAR(size->other, 0, 1e-9);
  EXPECT_EQ(size->slowest_rank, 1);
  EXPECT_NEAR(size->slowest_excess, 0.8 / 0.7 - 1, 1e-9);
  EXPECT_EQ(size->losses.size(), 35U);
}

TEST(ReadStepLog, RefusesWhatIsNotALog) {
  EXPECT_FALSE(ReadStepLog(Log(10, 2), 2, 4)) << "warm-up alone";
  EXPECT_FALSE(ReadStepLog("", 1, 1));
  const auto broken = ReadStepLog("{\"step\":1,\"tokens\":1}\n{\"st", 1, 1);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("line 2"));
}

TEST(CompareLosses, TellsRoundingFromParting) {
  SizeReport base, here;
  base.losses = {{1, 5.5}, {2, 5.25}, {3, 5.125}};
  here.losses = base.losses;
  EXPECT_EQ(CompareLosses(base, here).text, "equal those of 1 in all nine digits over 3 steps");
  here.losses[2] = 5.25000001;
  const auto rounded = CompareLosses(base, here);
  EXPECT_EQ(rounded.first_difference, 2);
  EXPECT_EQ(rounded.parts, 0);
  EXPECT_THAT(rounded.text, HasSubstr("up to rounding (first at step 2, at most 2e-09 of the loss)"));
  here.losses[3] = 5.2;
  const auto parted = CompareLosses(base, here);
  EXPECT_EQ(parted.parts, 3);
  EXPECT_EQ(parted.text, "part from those of 1 at step 3: 5.2 and 5.125");
}

TEST(ScalingTable, HasALineForEachSize) {
  const std::string table = ScalingTable({kBase, Size(2, 0.001, 0.045, 0.004, 0, 0.0045)});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_THAT(table, HasSubstr("    2      54.50        18789      1.83         92%"));
}

}  // namespace
}  // namespace trainyard::cli
