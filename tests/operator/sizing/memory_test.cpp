#include "operator/sizing/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

double Total(const MemoryInput& in) { return static_cast<double>(Estimate(in, 0).total); }

TEST(Memory, ReferenceRuleIsSixteenBytes) { EXPECT_EQ(ReferenceStateBytes(7'000'000'000), 112'000'000'000); }

TEST(Memory, FivePercentOfTheLabelIsKeptBack) {
  EXPECT_NEAR(static_cast<double>(UsableBytes(81559)), 0.95 * 81559 * 1024 * 1024, 100);
}

TEST(Memory, CorrectionsScaleTheirGroupOfTerms) {
  MemoryInput in;
  in.shape = ReferenceShapes().front();
  in.strategy = api::Strategy::kFsdp;
  in.ranks = 8;
  const PerGpuBytes plain = Estimate(in, 0);
  in.corrections = {.states = 1.5, .activations = 1.25, .buffers = 0.5, .overhead = 9};
  const PerGpuBytes corrected = Estimate(in, 0);
  EXPECT_NEAR(static_cast<double>(corrected.optimizer), 1.5 * static_cast<double>(plain.optimizer), 2);
  EXPECT_NEAR(static_cast<double>(corrected.gradients), 1.5 * static_cast<double>(plain.gradients), 2);
  EXPECT_NEAR(static_cast<double>(corrected.activations), 1.25 * static_cast<double>(plain.activations), 2);
  EXPECT_NEAR(static_cast<double>(corrected.logits), 1.25 * static_cast<double>(plain.logits), 2);
  EXPECT_NEAR(static_cast<double>(corrected.buffers), 0.5 * static_cast<double>(plain.buffers), 2);
  const int64_t tensors = corrected.total - corrected.overhead;
  EXPECT_NEAR(static_cast<double>(corrected.overhead),
              2 * (0.06 * static_cast<double>(tensors) + in.engine.context_bytes + in.engine.communicator_bytes), 2)
      << "a factor of 9 counts as 2";
}

TEST(Memory, AnAbsurdModelStaysANumber) {
  MemoryInput in;
  in.shape = ReferenceShapes().back();
  in.shape.parameters = 1'000'000'000'000'000'000;
  in.sequence = 100'000'000;
  in.micro_batch = 1'000'000;
  const PerGpuBytes b = Estimate(in, 1);
  EXPECT_GT(b.total, 0);
  EXPECT_FALSE(b.Fits());
}

class RandomInput {
 public:
  explicit RandomInput(unsigned seed) : random_(seed) {}
  MemoryInput Next() {
    MemoryInput in;
    in.shape = ReferenceShapes()[random_() % ReferenceShapes().size()];
    in.strategy = static_cast<api::Strategy>(1 + random_() % 4);
    in.ranks = 2 + static_cast<int64_t>(random_() % 500);
    in.micro_batch = 1 + static_cast<int64_t>(random_() % 16);
    in.sequence = 128 + static_cast<int64_t>(random_() % 8192);
    in.checkpointing = static_cast<Checkpointing>(random_() % 3);
    in.flash_attention = random_() % 4 != 0;
    in.optimizer = static_cast<Optimizer>(random_() % 4);
    in.offload = random_() % 2 == 0 ? Offload::kNone : static_cast<Offload>(random_() % 3);
    in.offload_parameters = random_() % 2 == 0;
    if (random_() % 2 == 0) {
      in.adapter.type = static_cast<AdapterType>(random_() % 3);
      in.adapter.rank = 1 + static_cast<int64_t>(random_() % 64);
    }
    if (random_() % 4 == 0) in.pipeline_parallel = 2;
    if (random_() % 4 == 0) in.tensor_parallel = 2;
    const auto precision = random_() % 2 == 0 ? api::Precision::kBf16 : api::Precision::kFp32;
    in.recipe = RecipeOf(precision);
    in.engine = random_() % 2 == 0 ? EagerTraits(precision, Machine::kGpu) : TrainerTraits(precision, Machine::kCpu);
    return in;
  }

 private:
  std::mt19937 random_;
};

TEST(Memory, NeverGrowsWithRanksNorShrinksWithTheMicroBatch) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomInput random(seed);
  for (int i = 0; i < 2000; ++i) {
    const MemoryInput in = random.Next();
    MemoryInput more = in;
    more.ranks += 1;
    EXPECT_LE(Total(more), Total(in));
    more = in;
    more.micro_batch += 1;
    EXPECT_GE(Total(more), Total(in));
    more = in;
    more.sequence += 128;
    EXPECT_GE(Total(more), Total(in));
  }
}

TEST(Memory, EveryStageHoldsNoMoreAtRestThanTheOneBefore) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomInput random(seed);
  for (int i = 0; i < 500; ++i) {
    MemoryInput in = random.Next();
    double before = INFINITY;
    for (api::Strategy strategy :
         {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kZero2, api::Strategy::kFsdp}) {
      in.strategy = strategy;
      const double held = WeightBytes(in) + GradientBytes(in) + MasterBytes(in) + OptimizerBytes(in);
      EXPECT_LE(held, before);
      before = held;
    }
  }
}

TEST(Memory, TotalIsTheSumOfItsTermsAndNoTermIsNegative) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomInput random(seed);
  for (int i = 0; i < 2000; ++i) {
    const MemoryInput in = random.Next();
    const PerGpuBytes b = Estimate(in, 1);
    MemoryInput prepared = in;
    Prepare(prepared);
    EXPECT_EQ(Estimate(prepared, 1).total, b.total);
    EXPECT_EQ(b.total,
              b.weights + b.gradients + b.master + b.optimizer + b.activations + b.logits + b.buffers + b.overhead);
    for (int64_t term :
         {b.weights, b.gradients, b.master, b.optimizer, b.activations, b.logits, b.buffers, b.overhead}) {
      EXPECT_GE(term, 0);
    }
    EXPECT_GE(static_cast<double>(b.total), AllocatedPeakBytes(in) * 0.75);
  }
}

}  // namespace
}  // namespace trainyard::sizing
