// What the engine shows to checkpoints, hashes and callers that make mistakes.
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/engine/harness.h"

namespace trainyard::engine::testing {
namespace {

struct State {
  Named master, exp_avg, exp_avg_sq;
  std::string hash;
};

constexpr int64_t kLength = 7, kBatch = 12;

void TrainStep(Engine& engine, model::Llama& llama, const at::Tensor& tokens, int rank, int world, int64_t step) {
  const int64_t part = kBatch / world;
  engine.BeginStep();
  engine.Backward(llama.LossSum(tokens.narrow(0, rank * part, part)), true);
  engine.FinishBackward();
  engine.Step(1e-2, 1.0 / (kBatch * kLength), step);
}

void Save(Engine& engine, int rank, State& state) {
  for (const ShardView& s : engine.Shards()) {
    const auto put = [&](Named& into, const at::Tensor& rows) {
      into.at(s.name).narrow(0, s.rows.lo, s.rows.size()).copy_(rows);
    };
    put(state.master, s.master), put(state.exp_avg, s.state.at(0)), put(state.exp_avg_sq, s.state.at(1));
  }
  const std::string hash = engine.ParameterHash();
  if (rank == 0) state.hash = hash;
}

void Load(Engine& engine, const State& state) {
  for (const ShardView& s : engine.Shards()) {
    const auto get = [&](const Named& from, const at::Tensor& rows) {
      EXPECT_TRUE(rows.is_contiguous());
      rows.copy_(from.at(s.name).narrow(0, s.rows.lo, s.rows.size()));
    };
    get(state.master, s.master), get(state.exp_avg, s.state.at(0)), get(state.exp_avg_sq, s.state.at(1));
  }
  engine.OnLoaded();
}

State RunSteps(int stage, int world, const State* from, int64_t first_step, int64_t last_step, uint64_t seed) {
  const model::LlamaConfig config = SmallLlama(true);
  const auto units = model::LlamaUnits(config);
  const at::Tensor tokens = Tokens(kBatch, kLength, config.vocab, 4);
  State state{Like(units, at::kDouble), Like(units, at::kDouble), Like(units, at::kDouble), ""};
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units, {.stage = stage, .compute_dtype = at::kDouble, .seed = seed});
    model::Llama llama(config, engine);
    if (from) {
      {
        at::NoGradGuard no_grad;  // gathers weights that loading must make stale
        llama.LossSum(tokens);
      }
      Load(engine, *from);
      EXPECT_EQ(engine.ParameterHash(), from->hash);
    }
    for (int64_t step = first_step; step <= last_step; ++step) TrainStep(engine, llama, tokens, rank, world, step);
    Save(engine, rank, state);
  });
  return state;
}

TEST(EngineState, ShardsLoadAtAnotherStageAndWorldAndTrainOnAlike) {
  const State start = RunSteps(0, 1, nullptr, 1, 2, 1);
  const State reference = RunSteps(0, 1, &start, 3, 4, 1);
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world : {1, 2, 3, 4}) {
      // Two steps here equal two steps there, and going on from either is the same. Another seed: all is loaded.
      const State saved = RunSteps(stage, world, nullptr, 1, 2, 1);
      const State resumed = RunSteps(3 - stage, 5 - world, &saved, 3, 4, 999);
      for (const auto& [name, r] : reference.master) {
        EXPECT_LE(RelativeError(resumed.master.at(name), r), 1e-10) << name << " stage " << stage << " of " << world;
        EXPECT_LE(RelativeError(resumed.exp_avg.at(name), reference.exp_avg.at(name)), 1e-10) << name;
        EXPECT_LE(RelativeError(resumed.exp_avg_sq.at(name), reference.exp_avg_sq.at(name)), 1e-10) << name;
      }
    }
  }
}

TEST(EngineState, ShowsTheStateThatTheOptimizerKeeps) {
  RunRanks(2, [&](int, device::Device& device, dist::Comm& comm) {
    for (int stage : {0, 3}) {
      const auto states = [&](const optim::Options& optimizer) {
        Engine engine(device, comm, model::LlamaUnits(SmallLlama(false)), {.stage = stage, .optimizer = optimizer});
        engine.OnLoaded();
        return engine.Shards().at(0).state.size();
      };
      EXPECT_EQ(states(optim::AdamWOptions{}), 2u);
      EXPECT_EQ(states(optim::SgdOptions{0.9}), 1u);
      EXPECT_EQ(states(optim::SgdOptions{}), 0u);
    }
  });
}

TEST(EngineState, HashIsTheSameAtEveryStageAndWorld) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::set<std::string> hashes;
    for (int stage = 0; stage <= 3; ++stage) {
      for (int world : {1, 2, 3, 4}) {
        RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
          Engine engine(device, comm, model::LlamaUnits(SmallLlama(false)),
                        {.stage = stage, .compute_dtype = type, .seed = 42});
          const std::string hash = engine.ParameterHash();
          if (rank == 0) hashes.insert(hash);
        });
      }
    }
    EXPECT_EQ(hashes.size(), 1u);
    EXPECT_EQ(hashes.begin()->size(), 16u);
  }
}

TEST(EngineState, HashSeesOneElementAndItsPlace) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, model::LlamaUnits(SmallLlama(false)), {.seed = 42});
    const std::string before = engine.ParameterHash();
    at::Tensor master = engine.Shards()[0].master;  // [19, 12]
    const at::Tensor row0 = master[0].clone(), row1 = master[1].clone();
    master[0].copy_(row1), master[1].copy_(row0);
    const std::string swapped = engine.ParameterHash();
    EXPECT_NE(swapped, before);
    master[0].copy_(row0), master[1].copy_(row1);
    EXPECT_EQ(engine.ParameterHash(), before);
    master[3][5] += 1e-6;
    EXPECT_NE(engine.ParameterHash(), before);
  });
}

TEST(EngineState, ReadingAFreedParameterIsAnError) {
  RunRanks(2, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, model::LlamaUnits(SmallLlama(false)), {.stage = 3, .seed = 42});
    EXPECT_THROW(engine.Param(1, 0), c10::Error);
    engine.PreForward(1);
    EXPECT_EQ(engine.Param(1, 0).numel(), 12);
  });
}

TEST(EngineState, ALostPeerLeavesBackwardAsCommError) {
  const model::LlamaConfig config = SmallLlama(true);
  const at::Tensor tokens = Tokens(kBatch, kLength, config.vocab, 4);
  bool seen = false;
  try {
    RunRanks(2, [&](int rank, device::Device& device, dist::Comm& comm) {
      Engine engine(device, comm, model::LlamaUnits(config), {.stage = 3, .seed = 42});
      model::Llama llama(config, engine);
      engine.BeginStep();
      const at::Tensor loss = llama.LossSum(tokens);
      if (rank == 1) throw std::runtime_error("rank 1 dies between forward and backward");
      try {
        engine.Backward(loss, true);
        engine.FinishBackward();
      } catch (const dist::CommError& error) {
        seen = true;
      }
    });
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 dies between forward and backward");
  }
  EXPECT_TRUE(seen);
}

TEST(EngineState, ImpossibleOptionsAreRefused) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    const auto units = model::LlamaUnits(SmallLlama(false));
    EXPECT_THROW(Engine(device, comm, units, {.stage = 4}), std::invalid_argument);
    EXPECT_THROW(Engine(device, comm, units, {.compute_dtype = at::kHalf}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace trainyard::engine::testing
