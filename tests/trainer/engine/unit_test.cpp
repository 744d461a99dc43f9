// A unit by itself: what is freed one weight at a time is gathered again as a whole.
#include <gtest/gtest.h>

#include "tests/trainer/engine/harness.h"
#include "trainer/engine/unit.h"

namespace trainyard::engine::testing {
namespace {

UnitSpec Pair() { return {"pair", {{"pair.a", {4, 6}, Init::kNormal, 0.5}, {"pair.b", {6, 4}, Init::kNormal, 0.5}}}; }

Layout Sharded(device::Device& device, dist::Comm& comm, dist::Comm& self, MemoryReport& memory) {
  Layout layout;
  layout.device = &device;
  layout.world = layout.shard = &comm;
  layout.replicate = &self;
  layout.memory = &memory;
  layout.stage = 3;
  layout.owners = comm.size();
  layout.owner = comm.rank();
  if (layout.owners == 1) layout.offload = Offload::kCpu;  // what makes one rank free its weights
  layout.frees = true;
  return layout;
}

TEST(EngineUnit, AReleasedWeightIsGatheredAgainByTheNextUse) {
  for (const int ranks : {1, 2}) {
    RunRanks(ranks, [&](int, device::Device& device, dist::Comm& comm) {
      MemoryReport memory;
      const auto self = dist::MakeSelfComm();
      const Layout layout = Sharded(device, comm, *self, memory);
      Unit unit(layout, Pair());
      unit.Initialise(1, true);
      constexpr int64_t kOne = 4 * 24;
      const auto gather = [&] {
        unit.UnshardAsync();
        unit.WaitUnshard();
      };
      gather();
      const at::Tensor a = unit.params()[0].full.detach().clone(), b = unit.params()[1].full.detach().clone();
      EXPECT_EQ(memory.params, 2 * kOne);
      const int64_t bytes = comm.payload_bytes(dist::Call::kAllGather);

      gather();  // it is there
      EXPECT_EQ(comm.payload_bytes(dist::Call::kAllGather), bytes);

      unit.Release(1);
      EXPECT_TRUE(unit.full()) << "the rest can be read on";
      EXPECT_EQ(memory.params, kOne);
      EXPECT_EQ(unit.params()[1].full.storage().nbytes(), 0u);
      EXPECT_TRUE(at::equal(unit.params()[0].full, a));

      gather();
      EXPECT_EQ(memory.params, 2 * kOne) << "each is counted once";
      EXPECT_TRUE(at::equal(unit.params()[0].full, a));
      EXPECT_TRUE(at::equal(unit.params()[1].full, b));
      EXPECT_EQ(comm.payload_bytes(dist::Call::kAllGather), 2 * bytes) << "the whole unit by one collective";

      unit.Release(0), unit.Release(0), unit.Release(1);
      EXPECT_EQ(memory.params, 0) << "twice is once";
      gather();
      unit.Release(0);
      unit.Reshard();
      EXPECT_EQ(memory.params, 0);
      EXPECT_FALSE(unit.full());
    });
  }
}

// Backward comes to a unit's second use first; the gradient of what only that one reads is complete with it, and its
// weight is freed while the first use is still to come.
at::Tensor TwiceUsed(ParameterHost& host, at::Tensor x) {
  for (const int u : {0, 1, 0}) {
    host.PreForward(u);
    const bool first = u == 0 && !x.requires_grad();
    x = at::mm(x, host.Param(u, first || u == 1 ? 0 : 1));
    x = host.PostForward(u, at::tanh(x));
  }
  return x.square().sum();
}

TEST(EngineUnit, AUnitUsedTwiceHasTheGradientsOfPlainTraining) {
  std::vector<UnitSpec> units = {Pair(), {"middle", {{"middle.w", {6, 6}, Init::kNormal, 0.5}}}};
  PlainHost host(units, at::kDouble, 5);
  const at::Tensor x = at::rand({3, 4}, at::detail::createCPUGenerator(5), at::dtype(at::kDouble));
  TwiceUsed(host, x).backward();
  const Named want = Gradients(host);
  for (const bool prefetch : {true, false}) {
    for (const int ranks : {1, 2}) {
      Named got = Like(units, at::kDouble);
      RunRanks(ranks, [&](int, device::Device& device, dist::Comm& comm) {
        Engine engine(device, comm, units,
                      {.stage = 3,
                       .compute_dtype = at::kDouble,
                       .prefetch = prefetch,
                       .offload = ranks == 1 ? Offload::kCpu : Offload::kNone,
                       .poison_freed = true,
                       .seed = 5});
        for (int step = 0; step < 2; ++step) {  // the second with recorded order
          engine.BeginStep();
          engine.Backward(TwiceUsed(engine, x), true);
          engine.FinishBackward();
        }
        CollectGradients(engine, got);
      });
      for (const auto& [name, w] : want) EXPECT_LE(RelativeError(got.at(name), ranks * w), 1e-12) << name;
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::testing
