// With exact sums, training is the same bytes whoever does what: parameters, optimizer state, losses and gradient norms
// at every stage and at 1, 2, 3, 4, 5, 6 and 8 ranks, against one rank of stage 0, in float and in bfloat16. The model
// has parameters with fewer rows than there are ranks, and the micro-batches divide by few of the world sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"

namespace trainyard::engine::testing {
namespace {

constexpr int64_t kMicroBatches = 6, kRows = 2, kLength = 7;
constexpr int kSteps = 5;

struct Setting {
  at::ScalarType type = at::kFloat;
  model::LlamaConfig model = SmallLlama(true);
  bool exact = true;
  std::vector<double> factors;  // of the loss, by step: what the gradients grow and shrink by
  // What must not matter.
  model::ActivationCheckpointing checkpointing = model::ActivationCheckpointing::kNone;
  bool each = true;  // stages 2 and 3: one reduction per micro-batch, not one per step
};

struct Result {
  Named masters;
  std::vector<Named> states;
  std::vector<double> losses, norms;
  std::vector<int> repeated;  // steps that were run twice
  std::map<std::string, int> shifts;
};

void Collect(Engine& engine, Result& result) {
  for (const ShardView& shard : engine.Shards()) {
    const auto put = [&](Named& into, const at::Tensor& rows) {
      into.at(shard.name).narrow(0, shard.rows.lo, shard.rows.size()).copy_(rows);
    };
    put(result.masters, shard.master);
    for (size_t i = 0; i < shard.state.size(); ++i) put(result.states[i], shard.state[i]);
  }
}

// What a rank carries through steps.
struct Training {
  Engine& engine;
  model::Llama& llama;
  const at::Tensor& tokens;  // [steps * micro-batches * rows, length + 1]
  const Setting& setting;
  int rank, world;

  // Losses of the own micro-batches, others 0.
  std::vector<double> Pass(int step) {
    std::vector<double> losses(kMicroBatches, 0.0);
    engine.BeginStep();
    const int64_t rounds = (kMicroBatches + world - 1) / world;
    for (int64_t i = 0; i < rounds; ++i) {
      const int64_t m = i * world + rank;
      const bool padding = m >= kMicroBatches;
      const int64_t first = padding ? 0 : ((step - 1) * kMicroBatches + m) * kRows;
      const double factor = setting.factors.empty() ? 1.0 : setting.factors[static_cast<size_t>(step - 1)];
      at::Tensor loss = llama.LossSum(tokens.narrow(0, first, padding ? 1 : kRows));
      if (!padding) losses[static_cast<size_t>(m)] = loss.item<double>();
      engine.Backward(loss * factor, i + 1 == rounds, padding);
    }
    return losses;
  }

  void Step(int step, dist::Comm& comm, Result& result) {
    std::vector<double> losses = Pass(step);
    if (!engine.FinishBackward()) {
      losses = Pass(step);
      EXPECT_TRUE(engine.FinishBackward()) << engine.ExactReason();
      if (rank == 0) result.repeated.push_back(step);
    }
    const at::Tensor all = at::from_blob(losses.data(), {kMicroBatches}, at::kDouble);
    comm.AllReduce(all, dist::Reduce::kOrderedSum)->Wait();
    const double scale = 1.0 / (kMicroBatches * kRows * kLength), norm = engine.GradNorm(scale);
    if (rank == 0) {
      double sum = 0;
      for (const double loss : losses) sum += loss;
      result.losses.push_back(sum);
      result.norms.push_back(norm);
    }
    engine.Step(1e-2, scale * optim::ClipFactor(norm, 1.0), step);
  }
};

Result Empty(const std::vector<UnitSpec>& units) {
  return {Like(units, at::kFloat), {Like(units, at::kFloat), Like(units, at::kFloat)}, {}, {}, {}, {}};
}

EngineOptions Options(const Setting& setting, int stage) {
  return {.stage = stage,
          .compute_dtype = setting.type,
          .reduce_each_micro_batch = setting.each,
          .seed = 5,
          .exact_micro_batches = setting.exact ? kMicroBatches : 0};
}

at::Tensor StepTokens(const model::LlamaConfig& config) {
  return Tokens(kSteps * kMicroBatches * kRows, kLength, config.vocab, 11);
}

// `shard`: ranks per shard group; 0: the stage's own.
Result Train(const Setting& setting, int stage, int world, int shard = 0) {
  const model::LlamaConfig& config = setting.model;
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = StepTokens(config);
  Result result = Empty(units);
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, shard > 0 ? shard : stage == 0 ? 1 : world);
    Engine engine(device, mesh, units, Options(setting, stage));
    model::Llama llama(config, engine, setting.checkpointing);
    Training training{engine, llama, tokens, setting, rank, world};
    for (int step = 1; step <= kSteps; ++step) training.Step(step, comm, result);
    Collect(engine, result);
    if (rank == 0) result.shifts = engine.ExactShifts();
  });
  return result;
}

void ExpectSame(const Result& got, const Result& reference, const std::string& what) {
  EXPECT_EQ(got.losses, reference.losses) << what;
  EXPECT_EQ(got.norms, reference.norms) << what;
  EXPECT_EQ(got.repeated, reference.repeated) << what;
  EXPECT_EQ(got.shifts, reference.shifts) << what;
  for (const auto& [name, r] : reference.masters) EXPECT_TRUE(at::equal(got.masters.at(name), r)) << what << name;
  for (size_t i = 0; i < reference.states.size(); ++i) {
    for (const auto& [name, r] : reference.states[i]) {
      EXPECT_TRUE(at::equal(got.states[i].at(name), r)) << what << name << ", state " << i;
    }
  }
}

Result ExpectSameEverywhere(const Setting& setting, const std::vector<int>& worlds = {1, 2, 3, 4, 5, 6, 8}) {
  const Result reference = Train({.type = setting.type, .model = setting.model, .factors = setting.factors}, 0, 1);
  EXPECT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : worlds) {
      ExpectSame(Train(setting, stage, world), reference,
                 "stage " + std::to_string(stage) + " of " + std::to_string(world) + ": ");
    }
  }
  return reference;
}

TEST(WorldSize, TrainingIsTheSameBytesAtEveryStageAndWorldSize) {
  const Result tied = ExpectSameEverywhere({});
  EXPECT_GT(tied.norms[0], 0.0);
  ExpectSameEverywhere({.model = SmallLlama(false)});
}

// What the other tests would miss if sums in float happened to agree here.
TEST(WorldSize, SumsInFloatAreNotTheSame) {
  const Setting in_float{.exact = false};
  const Result one = Train(in_float, 0, 1), three = Train(in_float, 0, 3);
  EXPECT_NE(one.norms, three.norms);
  const std::string name = "model.embed_tokens.weight";
  EXPECT_FALSE(at::equal(one.masters.at(name), three.masters.at(name)));
}

// Sizes at which matrix products use their blocked kernels, and whose tensors begin at odd places of a unit's buffer.
TEST(WorldSize, SoItIsForAModelOfMoreThanAFewRows) {
  model::LlamaConfig config = SmallLlama(true);
  config.layers = 2, config.hidden = 132, config.heads = 6, config.kv_heads = 3, config.ffn = 333, config.vocab = 517;
  ExpectSameEverywhere({.model = config}, {1, 2, 3, 5});
  ExpectSameEverywhere({.type = at::kBFloat16, .model = config}, {1, 3});
}

TEST(WorldSize, SoItIsInBfloat16) { ExpectSameEverywhere({.type = at::kBFloat16}); }

// Replicas of shard groups: 2x2, 3x2, 2x3 and 4x2.
TEST(WorldSize, SoItIsWithReplicas) {
  const Result reference = Train({}, 0, 1);
  for (int stage = 1; stage <= 3; ++stage) {
    for (const auto& [world, shard] : {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 2}}) {
      ExpectSame(
          Train({}, stage, world, shard), reference,
          std::to_string(world / shard) + "x" + std::to_string(shard) + " of stage " + std::to_string(stage) + ": ");
    }
  }
}

TEST(WorldSize, SoItIsWithActivationCheckpointing) {
  ExpectSameEverywhere({.checkpointing = model::ActivationCheckpointing::kSelective}, {1, 2, 3});
  ExpectSameEverywhere({.checkpointing = model::ActivationCheckpointing::kFull});
  ExpectSameEverywhere({.type = at::kBFloat16, .checkpointing = model::ActivationCheckpointing::kFull}, {1, 3});
}

TEST(WorldSize, SoItIsWithOneReductionPerStep) { ExpectSameEverywhere({.each = false}, {2, 3, 8}); }

// Gradients that grow by 2^30 and shrink by 2^40 between steps: the steps that do not fit are run twice, the same ones
// everywhere.
TEST(WorldSize, StepsThatOutgrowTheirFixedPointAreRunAgainByAll) {
  const Result result = ExpectSameEverywhere({.factors = {1.0, 0x1p30, 0x1p30, 0x1p-10, 0x1p-10}});
  EXPECT_EQ(result.repeated, (std::vector<int>{2, 4}));
}

// The sums are as good as those in float: near what an engine without exact sums gives.
TEST(WorldSize, GradientsAreThoseOfOtherSumsButForRounding) {
  const model::LlamaConfig config = SmallLlama(true);
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = StepTokens(config);
  std::vector<Named> gradients;
  for (const bool exact : {true, false}) {
    gradients.push_back(Like(units, at::kFloat));
    RunRanks(2, [&](int rank, device::Device& device, dist::Comm& comm) {
      Engine engine(device, comm, units, Options({.exact = exact}, 3));
      model::Llama llama(config, engine);
      Training{engine, llama, tokens, {}, rank, 2}.Pass(1);
      ASSERT_TRUE(engine.FinishBackward()) << engine.ExactReason();
      CollectGradients(engine, gradients.back());
    });
  }
  for (const auto& [name, g] : gradients[0]) EXPECT_LE(RelativeError(g, gradients[1].at(name)), 1e-6) << name;
}

// Half the steps at 2 ranks of stage 3, the rest at 3 ranks of stage 0 from what a checkpoint holds.
TEST(WorldSize, ThroughAResize) {
  const Setting setting{.factors = {1.0, 0x1p-10, 0x1p-20, 0x1p-28, 0x1p-20}};
  const Result reference = Train(setting, 0, 1);
  const model::LlamaConfig& config = setting.model;
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = StepTokens(config);
  Result result = Empty(units);
  RunRanks(2, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units, Options(setting, 3));
    model::Llama llama(config, engine);
    Training training{engine, llama, tokens, setting, rank, 2};
    for (int step = 1; step <= 2; ++step) training.Step(step, comm, result);
    Collect(engine, result);
    if (rank == 0) result.shifts = engine.ExactShifts();
  });
  const Result saved = result;
  RunRanks(3, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units, Options(setting, 0));
    model::Llama llama(config, engine);
    for (const ShardView& shard : engine.Shards()) {
      const auto get = [&](const at::Tensor& to, const Named& from) {
        to.copy_(from.at(shard.name).narrow(0, shard.rows.lo, shard.rows.size()));
      };
      get(shard.master, saved.masters);
      for (size_t i = 0; i < shard.state.size(); ++i) get(shard.state[i], saved.states[i]);
    }
    engine.OnLoaded();
    engine.SetExactShifts(saved.shifts);
    Training training{engine, llama, tokens, setting, rank, 3};
    for (int step = 3; step <= kSteps; ++step) training.Step(step, comm, result);
    Collect(engine, result);
    if (rank == 0) result.shifts = engine.ExactShifts();
  });
  ExpectSame(result, reference, "resized: ");
}

TEST(WorldSize, WhatIsNotFiniteIsToldAsSuchAndChangesNoShift) {
  const model::LlamaConfig config = SmallLlama(true);
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = StepTokens(config);
  const Setting setting{.factors = {1.0, std::numeric_limits<double>::infinity(), 1.0}};
  for (int stage = 0; stage <= 3; ++stage) {
    RunRanks(2, [&](int rank, device::Device& device, dist::Comm& comm) {
      Engine engine(device, comm, units, Options(setting, stage));
      model::Llama llama(config, engine);
      Training training{engine, llama, tokens, setting, rank, 2};
      Result result = Empty(units);
      training.Step(1, comm, result);
      const auto shifts = engine.ExactShifts();
      training.Pass(2);
      EXPECT_TRUE(engine.FinishBackward()) << "running it again would not help";
      EXPECT_TRUE(std::isnan(engine.GradNorm(1.0)));
      EXPECT_NE(engine.ExactReason().find("has gradients that are not finite"), std::string::npos)
          << engine.ExactReason();
      EXPECT_EQ(engine.ExactShifts(), shifts);
      training.Pass(3);
      EXPECT_TRUE(engine.FinishBackward());
      EXPECT_TRUE(std::isfinite(engine.GradNorm(1.0)));
      EXPECT_EQ(engine.ExactReason(), "");
    });
  }
}

// The table of docs/determinism.md: 8 bytes per parameter while sums grow, 4 when they have been read, and in between
// one unit in both forms.
TEST(WorldSize, SumsTakeEightBytesPerParameterAndFourOnceTheyAreRead) {
  const auto param = [](const char* name, std::vector<int64_t> shape) {
    return ParamSpec{name, std::move(shape), Init::kNormal, 0.02};
  };
  const std::vector<UnitSpec> units = {{"root", {param("wide", {8, 16})}, false},
                                       {"block", {param("a", {4, 8}), param("b", {4})}, true}};
  constexpr int64_t kRoot = 8 * 16, kAll = kRoot + 4 * 8 + 4;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : {1, 2}) {
      RunRanks(world, [&](int, device::Device& device, dist::Comm& comm) {
        Engine engine(device, comm, units, {.stage = stage, .exact_micro_batches = 2 * world});
        const auto loss = [&] {
          at::Tensor sum = at::zeros({});
          for (int u = 0; u < 2; ++u) {
            engine.PreForward(u);
            for (size_t i = 0; i < units[u].params.size(); ++i) sum = sum + engine.Param(u, static_cast<int>(i)).sum();
            sum = engine.PostForward(u, sum);
          }
          return sum;
        };
        const int64_t own = stage >= 2 ? world : 1;
        for (int step = 1; step <= 2; ++step) {
          engine.BeginStep();
          engine.Backward(loss(), false);
          EXPECT_EQ(engine.memory().gradients, 8 * kAll / own) << "stage " << stage << " of " << world;
          engine.Backward(loss(), true);
          ASSERT_TRUE(engine.FinishBackward()) << engine.ExactReason();
          const int64_t read = stage >= 1 ? world : 1;
          EXPECT_EQ(engine.memory().gradients, 4 * kAll / read) << "stage " << stage << " of " << world;
          EXPECT_EQ(engine.memory().buffers, 0);
          engine.Step(1e-3, 1.0, step);
        }
        if (stage >= 2 && world > 1) {
          EXPECT_EQ(engine.memory().peak_gradients, (8 * kAll + 4 * kRoot) / own)
              << "stage " << stage << " of " << world;
        }
      });
    }
  }
}

TEST(WorldSize, GradientsThatAreNotThereYetCannotBeUsed) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, model::LlamaUnits(SmallLlama(true)), Options({}, 0));
    engine.BeginStep();
    EXPECT_THROW(engine.Step(1e-3, 1.0, 1), c10::Error);
    EXPECT_THROW(engine.GradNorm(1.0), c10::Error);
    EXPECT_THROW(Engine(device, comm, {}, {.compute_dtype = at::kDouble, .exact_micro_batches = 1}),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace trainyard::engine::testing
