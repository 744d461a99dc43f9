#include "operator/sizing/memory_at_rest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

using api::Strategy;

ModelShape Reference(const std::string& name) {
  for (const ModelShape& m : ReferenceShapes()) {
    if (m.name == name) return m;
  }
  ADD_FAILURE() << name;
  return {};
}

MemoryInput Resting(Strategy strategy, int64_t ranks, const Recipe& recipe) {
  MemoryInput in;
  in.shape = Reference("Llama 2 7B");
  in.shape.parameters = 7'000'000'000;
  in.strategy = strategy;
  in.ranks = ranks;
  in.recipe = recipe;
  return in;
}

// Weights, gradients, master, optimizer in bytes per parameter.
void ExpectPerParameter(const MemoryInput& in, double weights, double gradients, double master, double optimizer) {
  const double p = 7e9;
  EXPECT_DOUBLE_EQ(WeightBytes(in), weights * p);
  EXPECT_DOUBLE_EQ(GradientBytes(in), gradients * p);
  EXPECT_DOUBLE_EQ(MasterBytes(in), master * p);
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), optimizer * p);
}

TEST(MemoryAtRest, WhatEachStageHoldsInBf16) {
  ExpectPerParameter(Resting(Strategy::kDdp, 8, Bf16Recipe()), 2, 4, 4, 8);
  ExpectPerParameter(Resting(Strategy::kZero1, 8, Bf16Recipe()), 2, 4, 4.0 / 8, 8.0 / 8);
  ExpectPerParameter(Resting(Strategy::kZero2, 8, Bf16Recipe()), 2, 4.0 / 8, 4.0 / 8, 8.0 / 8);
  ExpectPerParameter(Resting(Strategy::kFsdp, 8, Bf16Recipe()), 0, 4.0 / 8, 4.0 / 8, 8.0 / 8);
}

TEST(MemoryAtRest, InFp32WeightsAndMasterAreOne) {
  ExpectPerParameter(Resting(Strategy::kDdp, 4, Fp32Recipe()), 4, 4, 0, 8);
  ExpectPerParameter(Resting(Strategy::kZero1, 4, Fp32Recipe()), 4, 4, 0, 2);
  ExpectPerParameter(Resting(Strategy::kZero2, 4, Fp32Recipe()), 4, 1, 0, 2);
  ExpectPerParameter(Resting(Strategy::kFsdp, 4, Fp32Recipe()), 1, 1, 0, 2);
}

TEST(MemoryAtRest, OnOneRankEveryStrategyHoldsTheSame) {
  for (Strategy strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kFsdp}) {
    ExpectPerParameter(Resting(strategy, 1, Bf16Recipe()), 2, 4, 4, 8);
  }
}

TEST(MemoryAtRest, ReplicasOfShardsHoldWhatOneReplicaHolds) {
  MemoryInput in = Resting(Strategy::kFsdp, 64, Bf16Recipe());
  in.shard_ranks = 8;
  EXPECT_EQ(in.Replicas(), 8);
  ExpectPerParameter(in, 0, 4.0 / 8, 4.0 / 8, 8.0 / 8);
}

// Rows that the ranks do not divide: the first ranks have one more.
TEST(MemoryAtRest, TheFullestRankIsCountedRowByRow) {
  MemoryInput in;
  in.shape.layers = 1;
  in.shape.hidden = in.shape.ffn = 6;
  in.shape.heads = in.shape.kv_heads = 3;
  in.shape.vocab = 5;
  in.shape.parameters = CountParameters(in.shape);
  in.ranks = 4;
  in.strategy = Strategy::kFsdp;
  // Seven 6 x 6 matrices of the block and three norms of 6: two rows of each; two 5 x 6 matrices: two rows of each.
  const double numbers = 7 * 2 * 6 + 3 * 2 + 2 * 2 * 6;
  EXPECT_DOUBLE_EQ(TrainedElements(in, 4), numbers);
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 8 * numbers);
  EXPECT_DOUBLE_EQ(TrainedElements(in, 1), static_cast<double>(in.shape.parameters));
}

TEST(MemoryAtRest, OptimizersKeepWhatTheyNeed) {
  MemoryInput in;
  in.shape = Reference("Llama 3.1 8B");
  const double p = static_cast<double>(in.shape.parameters);
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 8 * p);
  in.optimizer = Optimizer::kSgd;
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 4 * p);
  in.momentum = false;
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 0);
  // Two bytes and two fp32 scales per 256 numbers of the matrices, whose rows are multiples of that.
  in.optimizer = Optimizer::kAdamW8bit;
  const double norms = 65 * 4096;
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), (2 + 8.0 / 256) * (p - norms) + 8 * norms);
  // Rows and columns of every matrix, all of every norm.
  in.optimizer = Optimizer::kAdafactor;
  const double h = 4096, kv = 1024, f = 14336, v = 128256;
  const double block = 2 * (h + h) + 2 * (kv + h) + 3 * (f + h) + 2 * h;
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 4 * (32 * block + 2 * (v + h) + h));
}

TEST(MemoryAtRest, SmallTensorsStayIn32BitsUnder8BitAdam) {
  MemoryInput in;
  in.shape.layers = 1;
  in.shape.hidden = in.shape.ffn = 8;
  in.shape.heads = in.shape.kv_heads = 2;
  in.shape.vocab = 16;
  in.shape.parameters = CountParameters(in.shape);
  in.optimizer = Optimizer::kAdamW8bit;
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 8 * static_cast<double>(in.shape.parameters));
}

// "trainable params: 4,194,304", as peft prints it for Llama 2 7B with rank 8 on q_proj and v_proj.
TEST(MemoryAtRest, AdaptersTrainWhatPeftCounts) {
  MemoryInput in;
  in.shape = Reference("Llama 2 7B");
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"q_proj", "v_proj"}};
  EXPECT_DOUBLE_EQ(TrainedElements(in, 1), 4'194'304);
  // Rank 64 on every linear layer: 159,907,840 (QLoRA's own configuration).
  in.adapter = {.type = AdapterType::kLora, .rank = 64};
  EXPECT_DOUBLE_EQ(TrainedElements(in, 1), 159'907'840);
}

TEST(MemoryAtRest, AdaptersLeaveTheBaseWithoutGradientsMasterOrMoments) {
  MemoryInput in;
  in.shape = Reference("Llama 2 7B");
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"q_proj", "v_proj"}};
  const double p = static_cast<double>(in.shape.parameters), a = 4'194'304;
  EXPECT_DOUBLE_EQ(WeightBytes(in), 2 * p + 2 * a);
  EXPECT_DOUBLE_EQ(GradientBytes(in), 4 * a);
  EXPECT_DOUBLE_EQ(MasterBytes(in), 4 * a);
  EXPECT_DOUBLE_EQ(OptimizerBytes(in), 8 * a);
  in.strategy = Strategy::kFsdp;
  in.ranks = 8;
  EXPECT_DOUBLE_EQ(WeightBytes(in), 2 * p / 8) << "the frozen base is cut too, the adapters live in the master copy";
  EXPECT_DOUBLE_EQ(MasterBytes(in), 4 * a / 8);
}

TEST(MemoryAtRest, QloraKeepsLinearLayersInNf4) {
  MemoryInput in;
  in.shape = Reference("Llama 2 7B");
  in.adapter = {.type = AdapterType::kQLora, .rank = 64};
  const double h = 4096, f = 11008;
  const double linear = 32 * (4 * h * h + 3 * h * f);
  const double others = static_cast<double>(in.shape.parameters) - linear;
  // A row of n numbers: n / 2 bytes of codes, one per block of 64, and two floats.
  const double of_h = 2048 + 64 + 8, of_f = 5504 + 172 + 8;
  const double packed = 32 * ((4 * h + 2 * f) * of_h + h * of_f);
  EXPECT_DOUBLE_EQ(WeightBytes(in), packed + 2 * others + 2.0 * 159'907'840);
  EXPECT_NEAR(8 * packed / linear, 4.14, 0.005);
  in.strategy = Strategy::kFsdp;
  in.ranks = 8;
  EXPECT_DOUBLE_EQ(WeightBytes(in), (packed + 2 * others) / 8);
}

// Our trainer under FSDP: the frozen base waits on the host too.
TEST(MemoryAtRest, OffloadedBaseIsOnTheHost) {
  MemoryInput in;
  in.shape = Reference("Llama 2 7B");
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"q_proj", "v_proj"}};
  in.strategy = Strategy::kFsdp;
  in.ranks = 8;
  in.engine = TrainerTraits(api::Precision::kBf16, Machine::kGpu);
  const double base = 2 * static_cast<double>(in.shape.parameters) / 8, a = 4'194'304.0 / 8;
  in.offload = Offload::kCpu;
  EXPECT_DOUBLE_EQ(StateOnGpu(in).Total(), 4 * a) << "gradients";
  EXPECT_DOUBLE_EQ(StateOffGpu(in).weights, base);
  EXPECT_DOUBLE_EQ(StateOffGpu(in).Total(), base + 12 * a);
  in.offload = Offload::kNvme;
  EXPECT_DOUBLE_EQ(StateOffGpu(in).weights, base + 2 * a);
}

TEST(MemoryAtRest, OffloadMovesStateAndLosesNone) {
  for (Strategy strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kFsdp}) {
    MemoryInput in = Resting(strategy, 4, Bf16Recipe());
    const double all = StateOnGpu(in).Total();
    EXPECT_EQ(StateOffGpu(in).Total(), 0);
    for (bool parameters : {false, true}) {
      in.offload = Offload::kCpu;
      in.offload_parameters = parameters;
      EXPECT_DOUBLE_EQ(StateOnGpu(in).Total() + StateOffGpu(in).Total(), all);
      EXPECT_EQ(GradientBytes(in) + MasterBytes(in) + OptimizerBytes(in), 0);
      if (parameters) {
        EXPECT_EQ(WeightBytes(in), 0);
      }
    }
  }
}

TEST(MemoryAtRest, OffloadOfOurTrainerLeavesGradientsOnTheGpuAndStreamsWeightsUnderFsdp) {
  for (const Recipe& recipe : {Bf16Recipe(), Fp32Recipe()}) {
    for (int64_t ranks : {1, 4}) {
      for (Strategy strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kFsdp}) {
        MemoryInput in = Resting(strategy, ranks, recipe);
        in.engine.streams_weights = true;
        const double gradients = GradientBytes(in);
        const double updated = TrainedElements(in, strategy == Strategy::kDdp ? 1 : ranks);
        in.offload = Offload::kCpu;
        EXPECT_EQ(GradientBytes(in), gradients);
        EXPECT_EQ(MasterBytes(in) + OptimizerBytes(in), 0);
        const bool fsdp = strategy == Strategy::kFsdp;
        EXPECT_EQ(WeightBytes(in), fsdp ? 0 : recipe.weights * TrainedElements(in, 1)) << ranks << " ranks";
        EXPECT_DOUBLE_EQ(StateOffGpu(in).Total(), 12 * updated) << "also where the GPU's weights are fp32";
        in.offload = Offload::kNvme;
        EXPECT_DOUBLE_EQ(StateOffGpu(in).weights, fsdp ? recipe.compute * updated : 0) << "what is gathered again";
        EXPECT_DOUBLE_EQ(StateOffGpu(in).master, recipe.compute < 4 ? 4 * updated : 0) << "in fp32 the weights are it";
        EXPECT_DOUBLE_EQ(StateOffGpu(in).optimizer, 8 * updated);
      }
    }
  }
}

TEST(MemoryAtRest, ParallelDegreesDivideTheState) {
  MemoryInput in;
  in.shape = Reference("Llama 3 70B");
  const double all = StateOnGpu(in).Total();
  in.tensor_parallel = 8;
  EXPECT_NEAR(StateOnGpu(in).Total(), all / 8, 1e-3 * all / 8) << "but for the norms";
  in.tensor_parallel = 1;
  in.pipeline_parallel = 4;
  const double block = static_cast<double>(BlockParameters(in.shape));
  EXPECT_DOUBLE_EQ(StateOnGpu(in).Total(), 18 * (20 * block + 128256.0 * 8192 + 8192))
      << "a quarter of the layers, and the end with head and norm";
}

}  // namespace
}  // namespace trainyard::sizing
