// What takes a GPU to see: the device, NCCL with one rank, and the engine at every stage against the CPU. Ranks of more
// than one are threads that share the GPU. Skips where there is none.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/nccl/nccl_comm.h"

namespace trainyard {
namespace {

using std::chrono::seconds;

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = device::Open("CUDA");
    if (!opened) GTEST_SKIP() << opened.error().message;
    device_ = std::move(*opened);
  }
  at::TensorOptions On(at::ScalarType type = at::kFloat) const { return at::dtype(type).device(device_->torch()); }
  std::unique_ptr<device::Device> device_;
};

TEST_F(Gpu, StorageComesAndGoesUnderALiveTensor) {
  const device::MemoryStats before = device_->Stats();
  at::Tensor t = device_->Empty({1 << 20}, at::kFloat);
  t.fill_(3);
  EXPECT_EQ(device_->Stats().current_bytes - before.current_bytes, 4 << 20);
  device_->ResizeStorage(t, 2 << 20);
  EXPECT_EQ(t.narrow(0, 0, 1 << 19).sum().item<float>(), 3.0F * (1 << 19));
  device_->ResizeStorage(t, 0);
  EXPECT_EQ(device_->Stats().current_bytes, before.current_bytes);
  device_->ResizeStorage(t, 4 << 20);
  t.variable_data().fill_(5);
  EXPECT_EQ(t.sum().item<float>(), 5.0F * (1 << 20));
  EXPECT_GE(device_->TotalStats().peak_bytes, 4 << 20);
}

TEST_F(Gpu, EventsOrderStreamsAndPinnedMemoryIsPinned) {
  at::Tensor t = at::zeros({1 << 22}, On());
  t.add_(1);
  auto event = device_->Record();
  event->Order();
  event->Synchronize();
  EXPECT_TRUE(event->Done());
  at::Tensor host = device_->PinnedEmpty({1 << 22}, at::kFloat);
  EXPECT_TRUE(host.is_pinned());
  host.copy_(t, /*non_blocking=*/true);
  device_->Synchronize();
  EXPECT_EQ(host.sum().item<float>(), static_cast<float>(1 << 22));
}

// Every call of NCCL that we make, with one rank: results are the inputs.
TEST_F(Gpu, NcclWithOneRank) {
  ncclUniqueId id;
  dist::nccl::Communicator::Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  dist::nccl::NcclComm comm(std::make_unique<dist::nccl::Communicator>(id, 0, 1, deadline), 0, 0, 1, "gpus", "gpus",
                            {0}, nullptr);
  const auto context = [] {
    dist::CallContext c;
    c.deadline = seconds(30);
    c.label = "test";
    return c;
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor in = at::arange(1, 70002, On()).to(type);
    for (const dist::Reduce reduce : {dist::Reduce::kSum, dist::Reduce::kOrderedSum}) {
      at::Tensor out = at::zeros_like(in);
      comm.DoReduceScatter(out, in, reduce, context())->Wait();
      EXPECT_TRUE(at::equal(out, in)) << type;
      out = in.clone();
      comm.DoAllReduce(out, reduce, context())->Wait();
      EXPECT_TRUE(at::equal(out, in)) << type;
    }
    at::Tensor out = at::zeros_like(in);
    comm.DoAllGather(out, in, context())->Wait();
    EXPECT_TRUE(at::equal(out, in)) << type;
    out.zero_();
    comm.DoAllToAll(out, in, context())->Wait();
    EXPECT_TRUE(at::equal(out, in)) << type;
    comm.DoBroadcast(out, 0, context())->Wait();
    EXPECT_TRUE(at::equal(out, in)) << type;
  }
  const at::Tensor longs = at::arange(1000, On(at::kLong));
  at::Tensor out = at::zeros_like(longs);
  comm.DoReduceScatter(out, longs, dist::Reduce::kInt64, context())->Wait();
  EXPECT_TRUE(at::equal(out, longs));
  comm.DoBarrier(context())->Wait();
  auto part = comm.DoSplit({0}, 0, 0, context());
  ASSERT_NE(part, nullptr);
  part->Barrier();
  // Dropped without Wait: the tensors live until the GPU is done.
  comm.DoAllReduce(at::ones({1 << 24}, On()), dist::Reduce::kSum, context());
  comm.Abort("the end");
  EXPECT_THROW(comm.DoBarrier(context()), dist::CommError);
}

// Gradients of two micro-batches on the GPU against the CPU's, normwise.
TEST_F(Gpu, EngineGivesTheGradientsOfTheCpu) {
  using namespace engine;           // NOLINT: the harness is the engine's
  using namespace engine::testing;  // NOLINT
  const model::LlamaConfig config = SmallLlama(true);
  const auto units = model::LlamaUnits(config);
  const auto gradients = [&](device::Device& device, dist::Comm& comm, int stage, Named& full) {
    EngineOptions options;
    options.stage = stage;
    options.seed = 7;
    Engine engine(device, comm, units, options);
    model::Llama llama(config, engine);
    engine.BeginStep();
    for (int micro = 0; micro < 2; ++micro) {
      const at::Tensor tokens = Tokens(2, 15, config.vocab, static_cast<uint64_t>(micro)).to(device.torch());
      engine.Backward(llama.LossSum(tokens), micro == 1);
    }
    engine.FinishBackward();
    CollectGradients(engine, full);
    EXPECT_TRUE(std::isfinite(engine.GradNorm(1.0)));
    engine.Step(1e-3, 1.0, 1);
  };
  Named reference = Like(units, at::kFloat);
  {
    auto cpu = device::Open("CPU").value();
    auto self = dist::MakeSelfComm();
    gradients(*cpu, *self, 0, reference);
  }
  for (const int world : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", ranks " + std::to_string(world));
      Named full = Like(units, at::kFloat);
      auto comms = dist::MakeInProcessComms(world);
      std::vector<std::thread> ranks;
      std::vector<std::string> errors(static_cast<size_t>(world));
      for (int r = 0; r < world; ++r) {
        ranks.emplace_back([&, r] {
          try {
            gradients(*device_, *comms[static_cast<size_t>(r)], stage, full);
          } catch (const std::exception& e) {
            errors[static_cast<size_t>(r)] = e.what();
            comms[static_cast<size_t>(r)].reset();
          }
        });
      }
      for (std::thread& rank : ranks) rank.join();
      for (const std::string& error : errors) ASSERT_EQ(error, "");
      // All ranks saw the same micro-batches.
      for (const auto& [name, gradient] : reference) {
        EXPECT_LT(RelativeError(full.at(name) / world, gradient), 1e-5) << name;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard
