// Gradients of every stage at every small world size against a plain single-process run of the same model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/trainer/engine/harness.h"

namespace trainyard::engine::testing {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr int64_t kMicroBatches = 12, kRows = 2, kLength = 7;

at::Tensor MicroBatch(const at::Tensor& tokens, int64_t index) { return tokens.narrow(0, index * kRows, kRows); }

// Rank r runs micro-batches r, r+W, r+2W, ... of the step.
Named EngineGradients(const model::LlamaConfig& config, const at::Tensor& tokens, int stage, int world,
                      at::ScalarType type, double* norm, int inflight = 2, bool prefetch = true) {
  const auto units = model::LlamaUnits(config);
  Named full = Like(units, type);
  std::vector<double> norms(world);
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(
        device, comm, units,
        {.stage = stage, .compute_dtype = type, .max_inflight_reduces = inflight, .prefetch = prefetch, .seed = kSeed});
    model::Llama llama(config, engine);
    for (int step = 0; step < 2; ++step) {  // the second with recorded order and buffers in place
      engine.BeginStep();
      for (int64_t m = rank; m < kMicroBatches; m += world) {
        engine.Backward(llama.LossSum(MicroBatch(tokens, m)), m + world >= kMicroBatches);
      }
      engine.FinishBackward();
    }
    norms[rank] = engine.GradNorm(0.5);
    CollectGradients(engine, full);
  });
  for (double n : norms) EXPECT_EQ(n, norms[0]) << "the norm must have the same bits on every rank";
  *norm = norms[0];
  return full;
}

Named ReferenceGradients(const model::LlamaConfig& config, const at::Tensor& tokens, at::ScalarType type,
                         bool one_batch) {
  at::set_num_threads(1);
  PlainHost host(model::LlamaUnits(config), type, kSeed);
  model::Llama llama(config, host);
  if (one_batch) {
    llama.LossSum(tokens).backward();
  } else {
    for (int64_t m = 0; m < kMicroBatches; ++m) llama.LossSum(MicroBatch(tokens, m)).backward();
  }
  return Gradients(host);
}

double Norm(const Named& grads) {
  double sum = 0;
  for (const auto& [name, g] : grads) sum += g.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

double worst_float = 0, worst_double = 0;  // printed at the end: how far from the bounds

void ExpectClose(const Named& got, const Named& ref, double tolerance, const std::string& what) {
  for (const auto& [name, r] : ref) {
    ASSERT_GT(r.abs().max().item<double>(), 0.0) << "reference gradient of " << name << " is all zero";
    const double error = RelativeError(got.at(name), r);
    EXPECT_LE(error, tolerance) << what << ": " << name;
    double& worst = r.scalar_type() == at::kDouble ? worst_double : worst_float;
    worst = std::max(worst, error);
  }
}

struct Case {
  int stage, world;
  bool tied;
};
class EngineGradients_ : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    std::printf("largest relative difference of a parameter's gradient: float %.3g, double %.3g\n", worst_float,
                worst_double);
  }
};

TEST_P(EngineGradients_, EqualTheSameMicroBatchesInFloat) {
  const auto [stage, world, tied] = GetParam();
  const model::LlamaConfig config = SmallLlama(tied);
  const at::Tensor tokens = Tokens(kMicroBatches * kRows, kLength, config.vocab, 5);
  double norm = 0;
  const Named got = EngineGradients(config, tokens, stage, world, at::kFloat, &norm);
  const Named ref = ReferenceGradients(config, tokens, at::kFloat, false);
  ExpectClose(got, ref, 1e-6, "float");
  EXPECT_NEAR(norm, 0.5 * Norm(ref), 1e-5 * norm);
}

TEST_P(EngineGradients_, EqualOneBigBatchInDouble_Bug45) {
  const auto [stage, world, tied] = GetParam();
  const model::LlamaConfig config = SmallLlama(tied);
  const at::Tensor tokens = Tokens(kMicroBatches * kRows, kLength, config.vocab, 6);
  double norm = 0;
  const Named got = EngineGradients(config, tokens, stage, world, at::kDouble, &norm);
  const Named ref = ReferenceGradients(config, tokens, at::kDouble, true);
  ExpectClose(got, ref, 1e-12, "double");
  EXPECT_NEAR(norm, 0.5 * Norm(ref), 1e-12 * norm) << "each element counts once";
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world = 1; world <= 4; ++world) {
      for (bool tied : {false, true}) cases.push_back({stage, world, tied});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(AllStages, EngineGradients_, ::testing::ValuesIn(AllCases()), [](const auto& info) {
  return "Stage" + std::to_string(info.param.stage) + "World" + std::to_string(info.param.world) +
         (info.param.tied ? "Tied" : "Untied");
});

TEST(EngineGradients, SameBitsWithAndWithoutPrefetchAndWithOneReduceInFlight) {
  const model::LlamaConfig config = SmallLlama(true);
  const at::Tensor tokens = Tokens(kMicroBatches * kRows, kLength, config.vocab, 8);
  double norm = 0;
  const Named a = EngineGradients(config, tokens, 3, 3, at::kFloat, &norm, 2, true);
  const Named b = EngineGradients(config, tokens, 3, 3, at::kFloat, &norm, 1, false);
  for (const auto& [name, g] : a) EXPECT_TRUE(at::equal(g, b.at(name))) << name;
}

TEST(EngineGradients, RanksShortOfAMicroBatchRunOneOfZeroWeight_Bug40) {
  const model::LlamaConfig config = SmallLlama(true);
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = Tokens(4 * kRows, kLength, config.vocab, 9);
  PlainHost host(units, at::kDouble, kSeed);
  model::Llama plain(config, host);
  plain.LossSum(tokens).backward();
  const Named ref = Gradients(host);
  for (int stage = 0; stage <= 3; ++stage) {
    Named full = Like(units, at::kDouble);
    RunRanks(3, [&](int rank, device::Device& device, dist::Comm& comm) {
      Engine engine(device, comm, units, {.stage = stage, .compute_dtype = at::kDouble, .seed = kSeed});
      model::Llama llama(config, engine);
      engine.BeginStep();
      for (int64_t k = 0; k < 2; ++k) {  // four micro-batches on three ranks
        const int64_t m = k * 3 + rank;
        const at::Tensor batch = MicroBatch(tokens, m < 4 ? m : 0);
        const at::Tensor weights = at::full({kRows}, m < 4 ? 1.0 : 0.0, at::kDouble);
        engine.Backward(llama.LossSum(batch, weights), k == 1);
      }
      engine.FinishBackward();
      CollectGradients(engine, full);
    });
    ExpectClose(full, ref, 1e-12, "stage " + std::to_string(stage));
  }
}

// Two parameters [5, 3] of which one is never used, and a unit that is used twice with another between.
std::vector<UnitSpec> OddUnits() {
  return {{"twice", {{"twice.a", {3, 3}, Init::kNormal, 0.5}, {"twice.unused", {5, 3}, Init::kNormal, 0.5}}, true},
          {"middle", {{"middle.b", {3, 3}, Init::kNormal, 0.5}}, true},
          {"never", {{"never.c", {2}, Init::kNormal, 0.5}}, true}};
}
at::Tensor OddLoss(ParameterHost& host, at::Tensor x) {
  for (int unit : {0, 1, 0}) {
    host.PreForward(unit);
    x = host.PostForward(unit, at::tanh(at::mm(x, host.Param(unit, 0))));
  }
  return x.square().sum();
}

TEST(EngineGradients, UnitUsedTwiceAndUnusedParametersAreExact_Bug42_44) {
  const auto units = OddUnits();
  const at::Tensor x = at::rand({12, 3}, at::kDouble);
  PlainHost host(units, at::kDouble, kSeed);
  OddLoss(host, x).backward();
  const Named ref = Gradients(host);
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world : {1, 2, 3, 4}) {
      Named full = Like(units, at::kDouble);
      RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
        Engine engine(device, comm, units, {.stage = stage, .compute_dtype = at::kDouble, .seed = kSeed});
        const int64_t part = 12 / world;
        for (int step = 0; step < 3; ++step) {
          engine.BeginStep();
          engine.Backward(OddLoss(engine, x.narrow(0, rank * part, part)), true);
          engine.FinishBackward();
        }
        CollectGradients(engine, full);
      });
      for (const char* name : {"twice.a", "middle.b"}) {
        EXPECT_LE(RelativeError(full.at(name), ref.at(name)), 1e-12) << name << " stage " << stage << " of " << world;
      }
      for (const char* name : {"twice.unused", "never.c"}) {
        EXPECT_EQ(full.at(name).abs().max().item<double>(), 0.0) << name << " stage " << stage << " of " << world;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::testing
