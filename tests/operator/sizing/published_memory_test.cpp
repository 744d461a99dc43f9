// The formulas against public measurements and worked examples. The table that it prints has every measurement with the
// prediction and its error; the sum of the absolute errors is held here and may not grow.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "operator/sizing/memory.h"
#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

// Percentage points over all rows of Measurements(). Smaller is better: the test says so, and then this is lowered.
constexpr double kSumOfErrors = 98.4;

ModelShape Reference(const std::string& name) {
  for (const ModelShape& m : ReferenceShapes()) {
    if (m.name == name) return m;
  }
  ADD_FAILURE() << name;
  return {};
}

double Total(const MemoryInput& in) { return static_cast<double>(Estimate(in, 0).total) / kGib; }
double Peak(const MemoryInput& in) { return AllocatedPeakBytes(in) / kGib; }

void Compiled(MemoryInput& in) {
  in.engine.kernels = Kernels::kFused;
  in.engine.logit_bytes = 10;
}

// torchtitan's benchmarks, Llama 3.1 8B on H100, FSDP2, batch 2 of 8192 tokens, selective checkpointing: max reserved.
MemoryInput Torchtitan(int64_t ranks, bool compiled) {
  MemoryInput in;
  in.shape = Reference("Llama 3.1 8B");
  in.strategy = api::Strategy::kFsdp;
  in.ranks = ranks;
  in.micro_batch = 2;
  in.sequence = 8192;
  in.checkpointing = Checkpointing::kSelective;
  in.engine.context_bytes = in.engine.communicator_bytes = 0;
  if (compiled) Compiled(in);
  return in;
}

MemoryInput LongSequence() {
  MemoryInput in = Torchtitan(8, true);
  in.micro_batch = 1;
  in.sequence = 32768;
  in.checkpointing = Checkpointing::kFull;
  return in;
}

// The same project, Llama 3.1 70B, FSDP over 32 times tensor parallel over 8, batch 16 of 8192, full checkpointing,
// float8, whose buffers are not modelled.
MemoryInput TwoDimensional() {
  MemoryInput in = Torchtitan(32, true);
  in.shape = Reference("Llama 3 70B");
  in.tensor_parallel = 8;
  in.micro_batch = 16;
  in.checkpointing = Checkpointing::kFull;
  return in;
}

// torchtune's memory table, Llama 3.2 3B on one A100, batch 2 of 4096 packed tokens, everything in BF16: peak active.
// Each row adds to the one before: compiled, loss in 8 chunks, full checkpointing, optimizer inside the backward pass.
MemoryInput Torchtune(int row) {
  MemoryInput in;
  in.shape = Reference("Llama 3.2 3B");
  in.micro_batch = 2;
  in.sequence = 4096;
  in.recipe = {.weights = 2, .gradients = 2, .master = 0, .optimizer = 4, .compute = 2};
  if (row >= 1) Compiled(in);
  if (row >= 2) in.engine.logit_chunks = 8;
  if (row >= 3) in.checkpointing = Checkpointing::kFull;
  if (row >= 4) in.recipe.gradients = 0;
  return in;
}

// The ML Engineering book, Llama 3.1 8B, one sequence of 32768 tokens.
MemoryInput MlEngineering() {
  MemoryInput in;
  in.shape = Reference("Llama 3.1 8B");
  in.sequence = 32768;
  in.checkpointing = Checkpointing::kFull;
  in.engine.logit_bytes = 4;
  return in;
}

struct Measurement {
  const char* what;
  double measured;   // GiB
  double predicted;  // GiB
  double vector;     // what the formulas gave when they were worked out by hand; 0: not worked out
  bool fitted;       // the 6 % of fragmentation were chosen on it
};

std::vector<Measurement> Measurements() {
  const double eager = Total(Torchtitan(8, false));
  const double compiled = Total(Torchtitan(8, true));
  const double eager_128 = Total(Torchtitan(128, false));
  const double compiled_128 = Total(Torchtitan(128, true));
  const MemoryInput book = MlEngineering();
  return {
      {"torchtitan 8B, 8 H100, eager", 82.4, eager, 83.2, true},
      {"torchtitan 8B, 8 H100, compiled", 77.0, compiled, 74.9, true},
      {"torchtitan 8B, 128 H100, eager", 67.0, eager_128, 68.3, true},
      {"torchtitan 8B, 128 H100, compiled", 62.0, compiled_128, 60.0, true},
      {"torchtitan 8B, 8 H100, 32K tokens, float8", 83.9, Total(LongSequence()), 75.5, true},
      {"torchtitan 8B, eager, 8 less 128 H100", 15.4, eager - eager_128, 14.9, true},
      {"torchtitan 8B, compiled, 8 less 128 H100", 15.0, compiled - compiled_128, 14.9, true},
      {"torchtitan 70B, FSDP 32 x TP 8, float8", 71.9, Total(TwoDimensional()), 0, false},
      {"torchtune 3B, eager", 60.0, Peak(Torchtune(0)), 59.7, false},
      {"torchtune 3B, compiled", 51.0, Peak(Torchtune(1)), 47.0, false},
      {"torchtune 3B, loss in chunks", 42.9, Peak(Torchtune(2)), 38.4, false},
      {"torchtune 3B, full checkpointing", 24.9, Peak(Torchtune(3)), 24.6, false},
      {"torchtune 3B, optimizer in backward", 23.1, Peak(Torchtune(4)), 20.5, false},
      {"ML Engineering 8B, one layer of 32K tokens", 7.0, LayerActivationBytes(book) / kGib, 0, false},
      {"ML Engineering 8B, checkpoints", 8.0, ActivationBytes(book) / kGib, 8.0, false},
      {"ML Engineering 8B, logits in fp32", 15.7, LogitBytes(book) / kGib, 15.7, false},
  };
}

TEST(PublishedMemory, EveryMeasurementWithItsErrorAndTheirSumDoesNotGrow) {
  double sum = 0;
  std::printf("%-44s %9s %9s %7s\n", "", "measured", "predicted", "error");
  for (const Measurement& m : Measurements()) {
    const double error = 100 * (m.predicted / m.measured - 1);
    sum += std::abs(error);
    std::printf("%-44s %9.2f %9.2f %+6.1f%%%s\n", m.what, m.measured, m.predicted, error, m.fitted ? " in sample" : "");
  }
  std::printf("sum of absolute errors %.1f percentage points, held at %.1f\n", sum, kSumOfErrors);
  if (sum < kSumOfErrors - 0.05) std::printf("better than held: set kSumOfErrors to %.1f\n", sum);
  EXPECT_LE(sum, kSumOfErrors + 0.05) << "the formulas have become worse at what was measured";
}

TEST(PublishedMemory, WorkedExamplesToTheDigitsGiven) {
  for (const Measurement& m : Measurements()) {
    if (m.vector > 0) {
      EXPECT_NEAR(m.predicted, m.vector, 0.0501) << m.what;
    }
  }
  // With the c = 28 that the book measured in place of 24.5, a layer has the 7 GiB that it measured.
  EXPECT_DOUBLE_EQ(LayerActivationBytes(MlEngineering()) / kGib * 28 / 24.5, 7.0);
  EXPECT_DOUBLE_EQ(SavedFactor(Reference("Llama 3.1 8B"), Kernels::kEager), 24.5);
  EXPECT_DOUBLE_EQ(SavedFactor(Reference("Llama 3.1 8B"), Kernels::kFused), 17.0);
  MemoryInput selective = MlEngineering();
  selective.checkpointing = Checkpointing::kSelective;
  EXPECT_DOUBLE_EQ(ActivationBytes(selective), 6.75 * ActivationBytes(MlEngineering()));
}

TEST(PublishedMemory, EveryPeakIsWithinTwelvePercentWhereTheNumbersAreModelled) {
  for (const Measurement& m : Measurements()) {
    const std::string what = m.what;
    // Float8 keeps buffers of its own; a Hugging Face layer keeps 28 hidden states, plain operations need 24.5.
    if (what.find("TP 8") != std::string::npos || what.find("one layer") != std::string::npos) continue;
    EXPECT_NEAR(m.predicted, m.measured, 0.12 * m.measured) << m.what;
  }
  // Float8 with gathers in float8 took 47.96 GiB on 32 H200: BF16 needs no less.
  EXPECT_GE(Total(Torchtitan(32, true)), 47.96);
}

// Gradients that every rank keeps in full between micro batches (no_sync), 26B on 16 GPUs: the share of 80 GB in use
// rose by 48 points, 38 GiB; 2 P (1 - 1/16) is 45.
TEST(PublishedMemory, UnshardedGradientsBetweenMicroBatches) {
  MemoryInput in;
  in.shape = Reference("Code Llama 34B");
  in.shape.parameters = 26'000'000'000;
  in.ranks = 16;
  in.recipe.gradients = 2;
  in.strategy = api::Strategy::kZero1;
  const double full = GradientBytes(in);
  in.strategy = api::Strategy::kFsdp;
  const double added = (full - GradientBytes(in)) / kGib;
  EXPECT_NEAR(added, 45.4, 0.05);
  EXPECT_GE(added, 0.48 * 79.2);
}

// llm-foundry's published MPT runs on 80 GB cards, of which the driver shows 79.2 GiB: all of them ran.
struct Mpt {
  const char* name;
  int64_t hidden, layers, heads, sequence, micro_batch, ranks;
  bool recompute;
  double worked_out;  // GiB
};

MemoryInput InputOf(const Mpt& run) {
  MemoryInput in;
  in.shape.block = BlockKind::kGpt2;
  in.shape.gated = false;
  in.shape.qkv_bias = in.shape.output_bias = in.shape.mlp_bias = true;
  in.shape.hidden = run.hidden;
  in.shape.layers = run.layers;
  in.shape.heads = in.shape.kv_heads = run.heads;
  in.shape.ffn = 4 * run.hidden;
  in.shape.vocab = 50368;
  in.shape.tied = true;
  in.shape.parameters = CountParameters(in.shape);
  in.strategy = api::Strategy::kFsdp;
  in.ranks = run.ranks;
  in.sequence = run.sequence;
  in.micro_batch = run.micro_batch;
  in.checkpointing = run.recompute ? Checkpointing::kFull : Checkpointing::kNone;
  in.engine.gathered_blocks = 2;
  in.engine.reduce_bytes = 2;
  in.engine.logit_bytes = 10;
  in.engine.context_bytes = 0.5 * kGib;
  in.engine.communicator_bytes = 1.0 * kGib;
  return in;
}

TEST(PublishedMemory, RunsThatDidFitFit) {
  const Mpt runs[] = {
      {"7B mb6", 4096, 32, 32, 2048, 6, 8, false, 70.9},         {"13B mb2", 5120, 40, 40, 2048, 2, 8, false, 57.3},
      {"13B s4096 mb10", 5120, 40, 40, 4096, 10, 8, true, 67.3}, {"30B mb3", 7168, 48, 56, 2048, 3, 8, true, 74.2},
      {"70B mb2", 8192, 80, 64, 2048, 2, 32, true, 48.8},        {"70B mb8", 8192, 80, 64, 2048, 8, 64, true, 54.8},
      {"7B s4096 mb16", 4096, 32, 32, 4096, 16, 8, true, 66.6}};
  for (const Mpt& run : runs) {
    const double need = Total(InputOf(run));
    std::printf("%-16s needs %5.1f of %4.1f GiB\n", run.name, need, 0.95 * 79.2);
    EXPECT_LE(need, 0.95 * 79.2) << run.name;
    EXPECT_NEAR(need, run.worked_out, 0.1) << run.name;
  }
  // With the logits of plain operations the last one would be refused, though it ran: q goes with the kernels.
  MemoryInput plain = InputOf(runs[6]);
  plain.engine.logit_bytes = 14;
  EXPECT_NEAR(Total(plain), 79.7, 0.1);
  // Nobody published 70B on eight of these cards.
  const Mpt refused = {"70B on 8", 8192, 80, 64, 4096, 1, 8, true, 145};
  EXPECT_NEAR(Total(InputOf(refused)), 145, 0.5);
  MemoryInput ours;
  ours.shape = Reference("Llama 3 70B");
  ours.strategy = api::Strategy::kFsdp;
  ours.ranks = 8;
  ours.checkpointing = Checkpointing::kFull;
  EXPECT_FALSE(Estimate(ours, UsableBytes(81559)).Fits());
  ours.engine = TrainerTraits(api::Precision::kBf16, Machine::kGpu);
  EXPECT_FALSE(Estimate(ours, UsableBytes(81559)).Fits());
}

// ZeRO (Rajbhandari et al., 2020), figure 1: 7.5B parameters on 64 GPUs, 2 + 2 + 12 bytes per parameter, in 10^9 bytes.
TEST(PublishedMemory, TheFirstFigureOfZero) {
  MemoryInput in;
  in.shape = Reference("Llama 3.1 8B");
  in.shape.parameters = 7'500'000'000;
  in.ranks = 64;
  in.recipe = {.weights = 2, .gradients = 2, .master = 4, .optimizer = 8, .compute = 2};
  EXPECT_NEAR(StateOnGpu(in).Total() / 1e9, 120, 0.05);
  in.strategy = api::Strategy::kZero1;
  EXPECT_NEAR(StateOnGpu(in).Total() / 1e9, 31.4, 0.05);
  in.strategy = api::Strategy::kZero2;
  EXPECT_NEAR(StateOnGpu(in).Total() / 1e9, 16.6, 0.05);
  // Its stage 3 keeps a BF16 shard besides the master copy: 16 bytes, 1.9; FSDP casts from the master copy: 14 bytes.
  in.strategy = api::Strategy::kFsdp;
  EXPECT_NEAR(StateOnGpu(in).Total() / 1e9, 1.9 * 14 / 16, 0.05);
}

}  // namespace
}  // namespace trainyard::sizing
