// Updates, memory and lower precision of the engine.
#include <gtest/gtest.h>

#include "tests/trainer/engine/harness.h"

namespace trainyard::engine::testing {
namespace {

constexpr uint64_t kSeed = 77;
constexpr int64_t kLength = 7, kBatch = 12;
const optim::AdamWOptions kAdamW{0.9, 0.95, 1e-8, 0.1};
constexpr double kRate = 1e-2, kClip = 0.5;

struct Trained {
  Named masters;
  std::string hash;
  double first_loss = 0, last_loss = 0;
  MemoryReport memory;
  int64_t parameters = 0;
};

// `steps` updates with clipping; each rank takes its part of every batch in `micro_batches` micro-batches. An
// evaluation without gradients runs between the steps.
Trained Train(const model::LlamaConfig& config, int stage, int world, at::ScalarType type, int steps,
              int micro_batches = 1, const optim::Options& optimizer = kAdamW, Offload offload = Offload::kNone) {
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = Tokens(kBatch, kLength, config.vocab, 3);
  const at::ScalarType master = type == at::kDouble ? at::kDouble : at::kFloat;
  Trained result;
  result.masters = Like(units, master);
  std::vector<double> first(world), last(world);
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units,
                  {.stage = stage,
                   .compute_dtype = type,
                   .offload = offload,
                   .offload_place = ScratchPlace(),
                   .seed = kSeed,
                   .optimizer = optimizer});
    model::Llama llama(config, engine);
    const at::Tensor mine = tokens.narrow(0, rank * (kBatch / world), kBatch / world);
    const double scale = 1.0 / static_cast<double>(kBatch * kLength);
    for (int step = 1; step <= steps; ++step) {
      engine.BeginStep();
      const int64_t rows = mine.size(0) / micro_batches;
      for (int m = 0; m < micro_batches; ++m) {
        engine.Backward(llama.LossSum(mine.narrow(0, m * rows, rows)), m + 1 == micro_batches);
      }
      engine.FinishBackward();
      const double clip = optim::ClipFactor(engine.GradNorm(scale), kClip);
      engine.Step(kRate, scale * clip, step);
      at::NoGradGuard no_grad;
      last[rank] = llama.LossSum(mine).item<double>() * scale;
      if (step == 1) first[rank] = last[rank];
    }
    CollectMasters(engine, result.masters);
    const std::string hash = engine.ParameterHash();
    if (rank == 0) {
      result.hash = hash;
      result.memory = engine.memory();
      result.parameters = engine.parameter_count();
    }
  });
  for (int r = 0; r < world; ++r) {
    result.first_loss += first[r];
    result.last_loss += last[r];
  }
  return result;
}

// One update of a parameter by the formulas of the papers, with operations that change it in place.
void PlainUpdate(const optim::Options& optimizer, const ParamSpec& spec, at::Tensor& p, const at::Tensor& gradient,
                 at::Tensor& m, at::Tensor& v, int step) {
  if (const auto* sgd = std::get_if<optim::SgdOptions>(&optimizer)) {
    const at::Tensor g = spec.decay ? gradient + sgd->weight_decay * p : gradient;
    m.mul_(sgd->momentum).add_(g);
    p.sub_(kRate * (sgd->nesterov ? g + sgd->momentum * m : m));
    return;
  }
  const auto& adam = std::get<optim::AdamWOptions>(optimizer);
  m.mul_(adam.beta1).add_(gradient, 1 - adam.beta1);
  v.mul_(adam.beta2).addcmul_(gradient, gradient, 1 - adam.beta2);
  if (spec.decay) p.mul_(1 - kRate * adam.weight_decay);
  p.sub_(kRate * (m / (1 - std::pow(adam.beta1, step))) / ((v / (1 - std::pow(adam.beta2, step))).sqrt() + adam.eps));
}

Named TrainPlain(const model::LlamaConfig& config, int steps, const optim::Options& optimizer = kAdamW) {
  PlainHost host(model::LlamaUnits(config), at::kDouble, kSeed);
  model::Llama llama(config, host);
  const at::Tensor tokens = Tokens(kBatch, kLength, config.vocab, 3);
  const double scale = 1.0 / static_cast<double>(kBatch * kLength);
  Named m, v, result;
  for (int step = 1; step <= steps; ++step) {
    host.ZeroGrad();
    llama.LossSum(tokens).backward();
    double sum = 0;
    host.ForEach([&](const ParamSpec&, at::Tensor& p) { sum += p.grad().square().sum().item<double>(); });
    const double clip = optim::ClipFactor(scale * std::sqrt(sum), kClip);
    host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
      at::NoGradGuard no_grad;
      if (step == 1) m[spec.name] = at::zeros_like(p), v[spec.name] = at::zeros_like(p);
      PlainUpdate(optimizer, spec, p, p.grad() * (scale * clip), m[spec.name], v[spec.name], step);
    });
  }
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) { result[spec.name] = p.detach(); });
  return result;
}

TEST(EngineStep, FiveUpdatesAgreeWithAPlainLoopAtEveryStageAndWorld) {
  for (bool tied : {true, false}) {
    const model::LlamaConfig config = SmallLlama(tied);
    const Named ref = TrainPlain(config, 5);
    for (int stage = 0; stage <= 3; ++stage) {
      for (int world = 1; world <= 4; ++world) {
        const Trained got = Train(config, stage, world, at::kDouble, 5);
        for (const auto& [name, r] : ref) {
          EXPECT_LE(RelativeError(got.masters.at(name), r), 1e-10) << name << " stage " << stage << " of " << world;
        }
        EXPECT_LT(got.last_loss, got.first_loss);
      }
    }
  }
}

TEST(EngineStep, SgdAgreesWithAPlainLoopAtEveryStageAndWorld) {
  const model::LlamaConfig config = SmallLlama(true);
  for (const optim::SgdOptions& sgd : {optim::SgdOptions{0, false, 0.1}, optim::SgdOptions{0.9, true, 0.1}}) {
    const Named ref = TrainPlain(config, 5, sgd);
    for (int stage = 0; stage <= 3; ++stage) {
      for (int world = 1; world <= 4; ++world) {
        const Trained got = Train(config, stage, world, at::kDouble, 5, 1, sgd);
        for (const auto& [name, r] : ref) {
          EXPECT_LE(RelativeError(got.masters.at(name), r), 1e-10) << name << " stage " << stage << " of " << world;
        }
      }
    }
  }
}

TEST(EngineStep, StagesGiveTheSameBitsAtOneWorldSize_Bug48) {
  const model::LlamaConfig config = SmallLlama(true);
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (int world : {1, 2, 3}) {
      const Trained zero = Train(config, 0, world, type, 3);
      for (int stage = 1; stage <= 3; ++stage) {
        EXPECT_EQ(Train(config, stage, world, type, 3).hash, zero.hash) << "stage " << stage << " of " << world;
      }
    }
  }
}

TEST(EngineStep, LowerPrecisionTrainsCloseToFloat) {
  const model::LlamaConfig config = SmallLlama(true);
  for (int stage : {0, 3}) {
    for (int world : {1, 2}) {
      const Trained low = Train(config, stage, world, at::kBFloat16, 20),
                    high = Train(config, stage, world, at::kFloat, 20);
      EXPECT_LT(low.last_loss, low.first_loss - 0.2);
      EXPECT_NEAR(low.last_loss, high.last_loss, 0.05) << "stage " << stage << " of " << world;
    }
  }
}

model::LlamaConfig DeepLlama() {
  model::LlamaConfig c;
  c.layers = 8, c.hidden = 64, c.heads = 4, c.kv_heads = 2, c.ffn = 192, c.vocab = 256, c.max_positions = 16;
  c.tied = true;
  return c;
}

TEST(EngineStep, HoldsTheBytesOfItsStage) {
  const Trained ddp = Train(DeepLlama(), 0, 4, at::kFloat, 2);
  const int64_t p = ddp.parameters;
  EXPECT_EQ(ddp.memory.params + ddp.memory.gradients + ddp.memory.master + ddp.memory.optimizer, 16 * p);
  EXPECT_EQ(ddp.memory.master, 0) << "in float the weights are the master weights";
  const Trained fsdp = Train(DeepLlama(), 3, 4, at::kFloat, 2);
  const auto& m = fsdp.memory;
  EXPECT_LE(m.params + m.gradients + m.master + m.optimizer, 0.30 * 16 * p);
  EXPECT_GE(m.params + m.gradients + m.master + m.optimizer, 4 * p) << "a quarter is the least that can be true";
  EXPECT_EQ(m.params, 0) << "nothing is gathered at rest";
  EXPECT_EQ(m.buffers, 0);
  EXPECT_LE(m.peak_total, 0.75 * ddp.memory.peak_total) << "gathered units and buffers included";
  // Stages 1 and 2 lie between.
  const Trained one = Train(DeepLlama(), 1, 4, at::kFloat, 2, 3), two = Train(DeepLlama(), 2, 4, at::kFloat, 2, 3);
  EXPECT_LE(one.memory.total(), 0.51 * 16 * p);
  EXPECT_LE(two.memory.total(), 0.51 * 16 * p);
  EXPECT_GE(one.memory.peak_gradients, 4 * p) << "stage 1 adds micro-batches up before it reduces";
  EXPECT_LE(two.memory.peak_gradients, 1.1 * p) << "stage 2 never holds all gradients";
  EXPECT_LE(two.memory.peak_total, one.memory.peak_total);
  // One rank holds the same at every stage.
  for (int stage : {0, 3}) EXPECT_EQ(Train(DeepLlama(), stage, 1, at::kFloat, 2).memory.total(), 16 * p);
  // SGD keeps one number per parameter with momentum, and nothing without.
  for (int stage : {0, 3}) {
    EXPECT_EQ(Train(DeepLlama(), stage, 1, at::kFloat, 1, 1, optim::SgdOptions{0.9}).memory.optimizer, 4 * p);
    EXPECT_EQ(Train(DeepLlama(), stage, 1, at::kFloat, 1, 1, optim::SgdOptions{}).memory.optimizer, 0);
  }
  // With offload the device has weights and gradients, the host the rest.
  for (const int stage : {0, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const MemoryReport off = Train(DeepLlama(), stage, 2, type, 2, 1, kAdamW, Offload::kCpu).memory;
      const int64_t owners = stage == 0 ? 1 : 2, e = type == at::kFloat ? 4 : 2;
      EXPECT_EQ(off.host_master, 4 * p / owners);
      EXPECT_EQ(off.host_optimizer, 8 * p / owners);
      EXPECT_EQ(off.total(), (stage == 0 ? e * p : 0) + 4 * p / owners);
    }
  }
  // Lower precision: 2 weights + 4 gradients + 4 master + 8 moments.
  EXPECT_EQ(Train(DeepLlama(), 0, 2, at::kBFloat16, 1).memory.total(), 18 * p);
}

}  // namespace
}  // namespace trainyard::engine::testing
