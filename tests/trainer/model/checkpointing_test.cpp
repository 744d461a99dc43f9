// Activation checkpointing: the same bits as without, on plain parameters and on the engine at stages 0 and 3, with
// stretches one inside another, shared and frozen parameters; and what it saves.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "tests/trainer/engine/harness.h"
#include "trainer/device/device.h"
#include "trainer/model/recompute.h"

namespace trainyard::model {
namespace {

using engine::Engine;
using engine::UnitSpec;
using engine::testing::Gradients;
using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RunRanks;
using engine::testing::Tokens;
using Mode = ActivationCheckpointing;

constexpr uint64_t kSeed = 11;
constexpr Mode kModes[] = {Mode::kNone, Mode::kSelective, Mode::kFull};

LlamaConfig Config(int64_t kv_heads) {
  LlamaConfig c;
  c.layers = 3, c.hidden = 48, c.heads = 6, c.kv_heads = kv_heads, c.ffn = 40, c.vocab = 29, c.max_positions = 16;
  c.tied = kv_heads == 2;
  return c;
}

void ExpectSameBits(const Named& a, const Named& b, const std::string& what) {
  for (const auto& [name, g] : a) {
    ASSERT_GT(g.abs().max().item<double>(), 0.0) << name;
    EXPECT_TRUE(at::equal(g, b.at(name))) << what << ": " << name;
  }
}

class CheckpointedLlama : public testing::TestWithParam<at::ScalarType> {};

TEST_P(CheckpointedLlama, HasTheLossAndGradientsOfThePlainOneBitForBit) {
  at::set_num_threads(1);
  for (const int64_t kv_heads : {2, 6}) {
    const LlamaConfig config = Config(kv_heads);
    const at::Tensor tokens = Tokens(3, 13, config.vocab, 4);
    std::map<Mode, Named> gradients;
    std::map<Mode, double> loss;
    for (const Mode mode : kModes) {
      const auto type = GetParam() == at::kBFloat16 ? at::kFloat : GetParam();
      PlainHost host(LlamaUnits(config), type, kSeed, GetParam());
      Llama llama(config, host, mode);
      const at::Tensor sum = llama.LossSum(tokens);
      loss[mode] = sum.item<double>();
      sum.backward();
      gradients[mode] = Gradients(host);
    }
    for (const Mode mode : {Mode::kSelective, Mode::kFull}) {
      EXPECT_EQ(loss[mode], loss[Mode::kNone]);
      ExpectSameBits(gradients[Mode::kNone], gradients[mode], "mode " + std::to_string(static_cast<int>(mode)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CheckpointedLlama, testing::Values(at::kFloat, at::kBFloat16, at::kDouble),
                         [](const auto& info) { return c10::toString(info.param); });

// Two steps of two micro-batches; the second with recorded order.
Named EngineGradients(Mode mode, int stage, int world, int64_t* peak_params = nullptr) {
  const LlamaConfig config = Config(2);
  const auto units = LlamaUnits(config);
  const at::Tensor tokens = Tokens(2 * world, 13, config.vocab, 4);
  Named full = engine::testing::Like(units, at::kFloat);
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units, {.stage = stage, .seed = kSeed});
    Llama llama(config, engine, mode);
    for (int step = 0; step < 2; ++step) {
      engine.BeginStep();
      for (int m = 0; m < 2; ++m) engine.Backward(llama.LossSum(tokens.narrow(0, 2 * rank + m, 1)), m == 1);
      engine.FinishBackward();
    }
    if (rank == 0 && peak_params != nullptr) *peak_params = engine.memory().peak_params;
    engine::testing::CollectGradients(engine, full);
  });
  return full;
}

TEST(Checkpointing, InsideEveryStageHasTheSameBits) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 2, 3}) {
      const Named none = EngineGradients(Mode::kNone, stage, world);
      for (const Mode mode : {Mode::kSelective, Mode::kFull}) {
        ExpectSameBits(none, EngineGradients(mode, stage, world),
                       "stage " + std::to_string(stage) + ", " + std::to_string(world) + " ranks");
      }
    }
  }
}

TEST(Checkpointing, FullGathersNoMoreUnitsAtOnceThanNone) {
  int64_t none = 0, full = 0;
  EngineGradients(Mode::kNone, 3, 2, &none);
  EngineGradients(Mode::kFull, 3, 2, &full);
  EXPECT_GT(none, 0);
  EXPECT_LE(full, none);
}

TEST(Checkpointing, WithoutGradientsNothingIsKeptAndTheValueIsTheSame) {
  const LlamaConfig config = Config(2);
  const at::Tensor tokens = Tokens(2, 13, config.vocab, 4);
  PlainHost host(LlamaUnits(config), at::kFloat, kSeed);
  at::NoGradGuard no_grad;
  Llama none(config, host), full(config, host, Mode::kFull), selective(config, host, Mode::kSelective);
  const double loss = none.LossSum(tokens).item<double>();
  EXPECT_EQ(full.LossSum(tokens).item<double>(), loss);
  EXPECT_EQ(selective.LossSum(tokens).item<double>(), loss);
  EXPECT_FALSE(full.LossSum(tokens).requires_grad());
}

// ---- stretches of a small model of three units, the first used at both ends ----

std::vector<UnitSpec> ThreeUnits() {
  return {{"a", {{"a.w", {3, 3}, engine::Init::kNormal, 0.5}, {"a.unused", {4}, engine::Init::kNormal, 0.5}}, true},
          {"b", {{"b.w", {3, 3}, engine::Init::kNormal, 0.5}}, true},
          {"c", {{"c.w", {3, 3}, engine::Init::kNormal, 0.5}}, true}};
}

at::Tensor Use(engine::ParameterHost& host, int unit, const at::Tensor& x) {
  host.PreForward(unit);
  return host.PostForward(unit, at::tanh(at::mm(x, host.Param(unit, 0))));
}

int uses_of_b = 0;  // of one rank only

// a, then b and c, then a again: plainly, as one stretch of two units, or as stretches inside a stretch.
at::Tensor Loss(engine::ParameterHost& host, const at::Tensor& input, int depth) {
  const at::Tensor a = host.Param(0, 0), b = host.Param(1, 0), c = host.Param(2, 0);
  const Stretch use_b = [&host](const at::Tensor& x, Run) {
    ++uses_of_b;
    return Use(host, 1, x);
  };
  const Stretch use_c = [&host](const at::Tensor& x, Run) { return Use(host, 2, x); };
  const at::Tensor x = Use(host, 0, input);
  at::Tensor y;
  if (depth == 0) y = use_c(use_b(x, Run::kFirst), Run::kFirst);
  if (depth == 1)
    y = Recomputed(host, [=](const at::Tensor& t, Run run) { return use_c(use_b(t, run), run); }, x, {b, c});
  if (depth == 2) {
    const Stretch inner = [=, &host](const at::Tensor& t, Run) {
      return Recomputed(host, use_c, Recomputed(host, use_b, t, {b}), {c});
    };
    y = Recomputed(host, inner, x, {b, c});
  }
  return Recomputed(host, [&host](const at::Tensor& t, Run) { return Use(host, 0, t); }, y, {a}).square().sum();
}

// Leaves also where the unit is not gathered.
class Leaves final : public engine::ParameterHost {
 public:
  Leaves(Engine& engine, std::vector<at::Tensor> leaves) : engine_(engine), leaves_(std::move(leaves)) {}
  const at::Tensor& Param(int unit, int /*index*/) const override { return leaves_[unit]; }
  void PreForward(int unit) override { engine_.PreForward(unit); }
  at::Tensor PostForward(int unit, at::Tensor y) override { return engine_.PostForward(unit, std::move(y)); }
  void BeginRecompute() override { engine_.BeginRecompute(); }
  void EndRecompute() override { engine_.EndRecompute(); }

 private:
  Engine& engine_;
  const std::vector<at::Tensor> leaves_;
};

TEST(Checkpointing, StretchesOfSeveralUnitsAndInsideOneAnotherAreExact_Bug41_43) {
  const auto units = ThreeUnits();
  at::manual_seed(kSeed);
  const at::Tensor x = at::rand({6, 3}, at::kDouble);
  PlainHost host(units, at::kDouble, kSeed);
  Loss(host, x, 0).backward();
  const Named ref = Gradients(host);
  for (const int stage : {0, 3}) {
    for (const int depth : {1, 2}) {
      for (const int world : {1, 2, 3}) {
        Named full = engine::testing::Like(units, at::kDouble);
        RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
          Engine engine(device, comm, units, {.stage = stage, .compute_dtype = at::kDouble, .seed = kSeed});
          std::vector<at::Tensor> leaves;
          for (int u = 0; u < 3; ++u) {
            engine.PreForward(u);
            leaves.push_back(engine.Param(u, 0));
            engine.PostForward(u, at::zeros({}));
          }
          Leaves host_of_engine(engine, leaves);
          const int64_t part = 6 / world;
          for (int step = 0; step < 3; ++step) {
            engine.BeginStep();
            engine.Backward(Loss(host_of_engine, x.narrow(0, rank * part, part), depth), true);
            engine.FinishBackward();
          }
          engine::testing::CollectGradients(engine, full);
          if (stage == 3 && world > 1) {
            EXPECT_EQ(engine.memory().params, 0) << "something is still gathered";
          }
        });
        for (const char* name : {"a.w", "b.w", "c.w"}) {
          EXPECT_LE(engine::testing::RelativeError(full.at(name), ref.at(name)), 1e-14)
              << name << ", stage " << stage << ", depth " << depth << ", " << world << " ranks";
        }
        EXPECT_EQ(full.at("a.unused").abs().max().item<double>(), 0.0);
      }
    }
  }
}

TEST(Checkpointing, AStretchRunsTwiceAndOneInsideItThreeTimes) {
  PlainHost host(ThreeUnits(), at::kDouble, kSeed);
  for (const auto& [depth, runs] : std::map<int, int>{{0, 1}, {1, 2}, {2, 3}}) {
    uses_of_b = 0;
    Loss(host, at::rand({2, 3}, at::kDouble), depth).backward();
    EXPECT_EQ(uses_of_b, runs) << "depth " << depth;
  }
}

// The first block after a frozen embedding: its input needs no gradient, its parameters do; and the other way round.
TEST(Checkpointing, NeitherFrozenInputsNorFrozenParametersLoseGradients) {
  at::manual_seed(kSeed);
  const at::Tensor x = at::rand({4, 3}, at::kDouble);
  for (const bool frozen_input : {true, false}) {
    PlainHost host(ThreeUnits(), at::kDouble, kSeed);
    at::Tensor w = host.Param(1, 0), input = x.clone().set_requires_grad(!frozen_input);
    w.set_requires_grad(frozen_input);
    at::tanh(at::mm(input, w)).square().sum().backward();
    at::Tensor& changes = frozen_input ? w : input;
    const at::Tensor ref = changes.grad().clone();
    changes.mutable_grad() = at::Tensor();
    Recomputed(host, [&](const at::Tensor& t, model::Run) { return at::tanh(at::mm(t, w)); }, input, {w})
        .square()
        .sum()
        .backward();
    EXPECT_TRUE(at::equal(changes.grad(), ref));
    EXPECT_FALSE((frozen_input ? input : w).grad().defined());
  }
}

int64_t KeptBytes(Mode mode, int64_t layers) {
  auto device = device::Open("CPU").value();
  LlamaConfig config = Config(6);
  config.layers = layers;
  PlainHost host(LlamaUnits(config), at::kFloat, kSeed);
  Llama llama(config, host, mode);
  const at::Tensor tokens = Tokens(4, 16, config.vocab, 4);
  llama.LossSum(tokens);  // makes the tables of positions
  const int64_t before = device->OperationStats().current_bytes;
  const at::Tensor loss = llama.LossSum(tokens);
  return device->OperationStats().current_bytes - before;
}

TEST(Checkpointing, KeepsOfABlockWhatItsModeSays) {
  const auto per_layer = [](Mode mode) { return (KeptBytes(mode, 5) - KeptBytes(mode, 3)) / 2; };
  const LlamaConfig c = Config(6);
  const int64_t n = 4 * 16, h = 4 * n * c.hidden, f = 4 * n * c.ffn, statistics = 4 * n * (2 + c.heads);
  EXPECT_NEAR(static_cast<double>(per_layer(Mode::kNone)), static_cast<double>(8 * h + 3 * f + statistics),
              0.02 * 8 * h);
  EXPECT_NEAR(static_cast<double>(per_layer(Mode::kSelective)), static_cast<double>(6 * h + 2 * f + statistics),
              0.02 * 8 * h);
  EXPECT_NEAR(static_cast<double>(per_layer(Mode::kFull)), static_cast<double>(h), 0.02 * h);
}

}  // namespace
}  // namespace trainyard::model
