#include "operator/sizing/memory_in_step.h"

#include <gtest/gtest.h>

#include <string>

#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

MemoryInput Input(const std::string& name) {
  MemoryInput in;
  for (const ModelShape& m : ReferenceShapes()) {
    if (m.name == name) in.shape = m;
  }
  EXPECT_GT(in.shape.layers, 0) << name;
  return in;
}

TEST(MemoryInStep, OneRankGathersAndReducesNothing) {
  for (api::Strategy strategy :
       {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kZero2, api::Strategy::kFsdp}) {
    MemoryInput in = Input("Llama 2 7B");
    in.strategy = strategy;
    EXPECT_EQ(GatheredBytes(in), 0);
    EXPECT_EQ(ReduceBytes(in), 0);
  }
}

// Korthikanti et al., 2022, give 5 a s² b bytes per layer at two bytes per number.
TEST(MemoryInStep, WithoutFlashAttentionEveryPairOfTokensIsKept) {
  MemoryInput in = Input("Llama 2 7B");
  const double flash = LayerActivationBytes(in), all = ActivationBytes(in);
  in.flash_attention = false;
  const double scores = 5.0 * 32 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(LayerActivationBytes(in) - flash, scores);
  EXPECT_DOUBLE_EQ(ActivationBytes(in) - all, 32 * scores);
  in.checkpointing = Checkpointing::kFull;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), 32.0 * 2 * 4096 * 4096) << "recomputed with the block";
  EXPECT_DOUBLE_EQ(LayerActivationBytes(in) - flash, scores) << "but there while one block is";
}

TEST(MemoryInStep, LogitsWholeAndInChunks) {
  MemoryInput in = Input("Llama 3.1 8B");
  EXPECT_DOUBLE_EQ(LogitBytes(in), 4096.0 * 128256 * 14);
  in.engine.logit_chunks = 8;
  EXPECT_DOUBLE_EQ(LogitBytes(in), 4096.0 * 128256 * 14 / 8);
}

// Block: its input, the normed input, q, k, v, attention's output, the middle residual, its norm, gate, up, product.
TEST(MemoryInStep, OurTrainerKeepsWhatItsOperationsSave) {
  const ModelShape m = Input("Llama 3.1 8B").shape;
  const double kv = static_cast<double>(m.kv_heads) / static_cast<double>(m.heads);
  const double r = static_cast<double>(m.ffn) / static_cast<double>(m.hidden);
  EXPECT_DOUBLE_EQ(SavedFactor(m, TrainerTraits(api::Precision::kBf16, Machine::kGpu).kernels),
                   1 + 1 + (1 + 2 * kv) + 1 + 1 + 1 + 3 * r);
}

// Selective: the same without the two normed inputs and the MLP's product; full: the input.
TEST(MemoryInStep, OurTrainerKeepsLessUnderCheckpointing) {
  MemoryInput in = Input("Llama 3.1 8B");
  in.engine = TrainerTraits(api::Precision::kBf16, Machine::kGpu);
  const double hidden = 2.0 * 4096 * 4096, statistics = 4.0 * 4096 * (2 + 32), r = 14336.0 / 4096;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), 32 * (17.0 * hidden + statistics));
  in.checkpointing = Checkpointing::kSelective;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), 32 * ((15 - r) * hidden + statistics));
  in.checkpointing = Checkpointing::kFull;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), 32 * hidden);
  // One block but for its MLP's product, two gradients of the MLP's width and two of hidden states.
  in.micro_batch = 16;
  EXPECT_DOUBLE_EQ(BackwardExtraBytes(in), 16 * ((17.0 - r + 2 * r + 2) * hidden + statistics) - LogitBytes(in));
}

TEST(MemoryInStep, OurTrainersLogitsStopGrowingAtOneChunk) {
  MemoryInput in = Input("Llama 3.1 8B");
  in.engine = TrainerTraits(api::Precision::kBf16, Machine::kGpu);
  const double at_4096 = LogitBytes(in);
  in.sequence = 8192;
  // Only the hidden states around the last norm and their gradient grow.
  EXPECT_DOUBLE_EQ(LogitBytes(in) - at_4096, 3 * 2.0 * 4096 * 4096);
}

TEST(MemoryInStep, TensorAndSequenceParallelismDivideActivationsAndLogits) {
  MemoryInput in = Input("Llama 3 70B");
  in.flash_attention = false;
  const double activations = ActivationBytes(in), logits = LogitBytes(in);
  in.tensor_parallel = 8;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), activations / 8);
  EXPECT_DOUBLE_EQ(LogitBytes(in), logits / 8);
}

TEST(MemoryInStep, APipelineHoldsAsManyMicroBatchesAsStages) {
  MemoryInput in = Input("Llama 3 70B");
  const double all = ActivationBytes(in);
  in.pipeline_parallel = 4;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), all) << "four micro batches of a quarter of the layers";
  in.micro_batches = 1;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), all / 4);
}

TEST(MemoryInStep, ReplicasOfShardsExchangeOneShardMore) {
  MemoryInput in = Input("Llama 3.1 8B");
  in.strategy = api::Strategy::kFsdp;
  in.ranks = 8;
  const double one = ReduceBytes(in);
  in.ranks = 32;
  in.shard_ranks = 8;
  EXPECT_DOUBLE_EQ(ReduceBytes(in) - one, 2 * 4.0 * static_cast<double>(BlockParameters(in.shape)) / 8);
}

TEST(MemoryInStep, AdaptersReduceLittleAndKeepTheActivations) {
  MemoryInput in = Input("Llama 2 7B");
  in.ranks = 8;
  const double activations = ActivationBytes(in);
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"q_proj", "v_proj"}};
  EXPECT_DOUBLE_EQ(ReduceBytes(in), 2 * 4 * 4'194'304.0 / 32);
  EXPECT_DOUBLE_EQ(ActivationBytes(in) - activations, 32 * 2.0 * 4096 * 2 * 8) << "rank numbers per token and adapter";
  in.engine.keeps_adapter_outputs = false;
  EXPECT_DOUBLE_EQ(ActivationBytes(in), activations);
  in.adapter.type = AdapterType::kQLora;
  EXPECT_DOUBLE_EQ(GatheredBytes(in), 2.0 * 4096 * 11008) << "one matrix at a time is there in BF16";
  in.strategy = api::Strategy::kFsdp;
  // Of a block: its matrices in NF4, its norms and its adapters in BF16.
  const double block = (4 * 4096 + 2 * 11008) * 2120.0 + 4096 * 5684.0 + 2 * (2 * 4096 + 4'194'304.0 / 32);
  EXPECT_DOUBLE_EQ(GatheredBytes(in), 2.0 * (2 * 32000 + 1) * 4096 + 4 * block + 2.0 * 4096 * 11008);
}

TEST(MemoryInStep, OffloadedParametersVisitInTwoBlocks) {
  MemoryInput in = Input("Llama 2 7B");
  in.offload = Offload::kCpu;
  EXPECT_EQ(GatheredBytes(in), 0);
  EXPECT_GT(ReduceBytes(in), 0) << "gradients on their way to the host";
  in.offload_parameters = true;
  const double block = static_cast<double>(BlockParameters(in.shape)),
               root = static_cast<double>(RootParameters(in.shape));
  EXPECT_DOUBLE_EQ(GatheredBytes(in), 2 * root + 2 * 2 * block);
}

}  // namespace
}  // namespace trainyard::sizing
