#include "operator/sizing/memory_host.h"

#include <gtest/gtest.h>

#include <string>

#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

MemoryInput Seven(int64_t ranks) {
  MemoryInput in;
  for (const ModelShape& m : ReferenceShapes()) {
    if (m.name == "Llama 2 7B") in.shape = m;
  }
  in.shape.parameters = 7'000'000'000;
  in.ranks = ranks;
  in.strategy = ranks > 1 ? api::Strategy::kFsdp : api::Strategy::kDdp;
  return in;
}

TEST(MemoryHost, ACheckpointIsTwelveBytesPerParameterAndTheDiskHoldsOneMore) {
  EXPECT_EQ(CheckpointBytes(7'000'000'000), 84'000'000'000);
  for (int64_t ranks : {1, 8, 64}) {
    const HostBytes host = EstimateHost(Seven(ranks), 3);
    EXPECT_EQ(host.checkpoint, 84'000'000'000) << "whatever the number of ranks";
    EXPECT_EQ(host.disk, 4 * host.checkpoint);
    EXPECT_EQ(host.offloaded, 0);
    EXPECT_EQ(host.nvme, 0);
    EXPECT_NEAR(static_cast<double>(host.pinned), 84e9 / static_cast<double>(ranks), 1e6);
  }
  EXPECT_EQ(EstimateHost(Seven(8), 0).disk, 84'000'000'000) << "the one that is being written";
  EXPECT_EQ(EstimateHost(Seven(8), -5).disk, 84'000'000'000);
}

TEST(MemoryHost, ACheckpointHoldsWhatIsTrained) {
  MemoryInput in = Seven(1);
  in.optimizer = Optimizer::kSgd;
  EXPECT_EQ(CheckpointBytes(in), 8 * 7'000'000'000);
  in.optimizer = Optimizer::kAdamW;
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"q_proj", "v_proj"}};
  EXPECT_EQ(CheckpointBytes(in), 12 * 4'194'304);
}

// ZeRO-Offload keeps 16 bytes per parameter on the host: master 4, moments 8, fp32 gradients 4.
TEST(MemoryHost, CpuOffloadHoldsSixteenBytesPerParameter) {
  MemoryInput in = Seven(8);
  in.offload = Offload::kCpu;
  EXPECT_NEAR(static_cast<double>(EstimateHost(in, 3).offloaded), 16 * 7e9 / 8, 2);
  in.recipe = Fp32Recipe();
  EXPECT_NEAR(static_cast<double>(EstimateHost(in, 3).offloaded), 16 * 7e9 / 8, 2) << "the host has a copy of its own";
}

TEST(MemoryHost, NvmeHoldsMasterAndMomentsAndTheHostTheGradients) {
  MemoryInput in = Seven(8);
  in.offload = Offload::kNvme;
  const HostBytes host = EstimateHost(in, 3);
  EXPECT_NEAR(static_cast<double>(host.offloaded), 4 * 7e9 / 8, 2);
  EXPECT_NEAR(static_cast<double>(host.nvme), 12 * 7e9 / 8, 2);
}

TEST(MemoryHost, OurTrainerOffloadsMasterAndMomentsOnly) {
  MemoryInput in = Seven(8);
  const int64_t plain = EstimateHost(in, 3).pinned;
  in.engine.streams_weights = true;
  in.offload = Offload::kCpu;
  EXPECT_NEAR(static_cast<double>(EstimateHost(in, 3).offloaded), 12 * 7e9 / 8, 2);
  in.offload = Offload::kNvme;
  const HostBytes host = EstimateHost(in, 3);
  EXPECT_NEAR(static_cast<double>(host.nvme), 12 * 7e9 / 8, 2);
  EXPECT_NEAR(static_cast<double>(host.offloaded), 2 * 7e9 / 8, 2) << "the copy that is gathered from";
  const double block = 202'383'360, root = 262'148'096;
  EXPECT_NEAR(static_cast<double>(host.pinned - plain), 2 * (4 + 2) * block + 3 * 12 * root / 8, 3e7)
      << "staging of two blocks, and three windows of the largest part";
  const OffloadRates rates{.pcie = 10e9, .host_memory = 100e9, .nvme_read = 4e9, .nvme_write = 2e9};
  EXPECT_NEAR(OffloadSlowdown(in, rates, 4).transfer, (4 + 2 * 4 * 2) * 7e9 / 8 / 10e9, 1e-6)
      << "gradients once, weights twice per micro batch";
  in.strategy = api::Strategy::kZero2;
  EXPECT_NEAR(OffloadSlowdown(in, rates, 4).transfer, (4 + 2) * 7e9 / 8 / 10e9, 1e-6);
}

TEST(MemoryHost, OffloadCostsTheSecondsThatItsBytesTake) {
  MemoryInput in = Seven(1);
  const OffloadRates rates{.pcie = 10e9, .host_memory = 100e9, .nvme_read = 4e9, .nvme_write = 2e9};
  EXPECT_EQ(OffloadSlowdown(in, rates, 4).Total(), 0);
  in.offload = Offload::kCpu;
  const OffloadSeconds cpu = OffloadSlowdown(in, rates, 4);
  EXPECT_DOUBLE_EQ(cpu.transfer, 5 * 2 * 7e9 / 10e9) << "gradients of four micro batches down, weights up";
  EXPECT_DOUBLE_EQ(cpu.update, (4 + 2 * 12 + 2) * 7e9 / 100e9);
  EXPECT_EQ(cpu.disk, 0);
  in.offload = Offload::kNvme;
  EXPECT_DOUBLE_EQ(OffloadSlowdown(in, rates, 4).disk, 12 * 7e9 / 4e9 + 12 * 7e9 / 2e9);
  in.offload_parameters = true;
  EXPECT_DOUBLE_EQ(OffloadSlowdown(in, rates, 4).transfer, (5 * 2 * 7e9 + 2 * 4 * 2 * 7e9) / 10e9)
      << "and the weights twice per micro batch";
}

TEST(MemoryHost, WholeGradientsCrossUnlessTheyAreCut) {
  const OffloadRates rates{.pcie = 10e9, .host_memory = 100e9, .nvme_read = 4e9, .nvme_write = 2e9};
  MemoryInput in = Seven(2);
  in.offload = Offload::kCpu;
  in.strategy = api::Strategy::kZero1;
  EXPECT_NEAR(OffloadSlowdown(in, rates, 4).transfer, (4 * 2 * 7e9 + 2 * 3.5e9) / 10e9, 1e-6);
  in.strategy = api::Strategy::kZero2;
  EXPECT_NEAR(OffloadSlowdown(in, rates, 4).transfer, (4 * 2 * 3.5e9 + 2 * 3.5e9) / 10e9, 1e-6);
}

}  // namespace
}  // namespace trainyard::sizing
