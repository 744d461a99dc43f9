// What an update makes of given gradients does not depend on who owns which rows: with gradients whose sums are exact,
// parameters and optimizer state have the same bytes at every stage and at 1, 2, 3, 4, 5, 6 and 8 ranks, clip included.
// Some parameters have fewer rows than there are ranks, so that ranks own nothing of them.
#include <gtest/gtest.h>

#include "tests/trainer/engine/harness.h"

namespace trainyard::engine::testing {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 5, 6, 8};
constexpr int kMicroBatches = 8, kSteps = 4;

std::vector<UnitSpec> Units() {
  const auto param = [](const char* name, std::vector<int64_t> shape, bool decay) {
    return ParamSpec{name, std::move(shape), Init::kNormal, 0.02, decay};
  };
  UnitSpec root{"root", {param("wide", {17, 6}, true), param("scale", {6}, false)}, false};
  UnitSpec block{
      "block", {param("one", {1, 9}, true), param("bias", {2}, false), param("deep", {5, 3, 2}, true)}, true};
  return {root, block};
}

// Small whole numbers that differ by parameter, element, step and micro-batch; zeros for a micro-batch that is not one.
at::Tensor Coefficients(const ParamSpec& spec, int64_t salt, int step, int micro_batch) {
  if (micro_batch >= kMicroBatches) return at::zeros(spec.shape);
  const at::Tensor index = at::arange(spec.numel(), at::kLong);
  const at::Tensor mixed = index * 7919 + salt * 104729 + step * 31 + micro_batch * 17;
  return mixed.remainder(23).sub(11).to(at::kFloat).view(spec.shape);
}

// A loss that is linear in every parameter: its gradients are the coefficients themselves.
at::Tensor Loss(Engine& engine, int step, int micro_batch) {
  at::Tensor loss = at::zeros({});
  for (int u = 0; u < engine.unit_count(); ++u) {
    engine.PreForward(u);
    at::Tensor sum = at::zeros({});
    const auto& params = engine.unit(u).params;
    for (size_t i = 0; i < params.size(); ++i) {
      const at::Tensor c = Coefficients(params[i], u * 10 + static_cast<int64_t>(i), step, micro_batch);
      sum = sum + (engine.Param(u, static_cast<int>(i)) * c).sum();
    }
    loss = loss + engine.PostForward(u, sum);
  }
  return loss;
}

struct Result {
  Named masters;
  std::vector<Named> states;
  std::vector<double> norms;
};

Result TrainSteps(const optim::Options& optimizer, int stage, int world) {
  Result result{Like(Units(), at::kFloat), {}, {}};
  for (size_t i = 0; i < optim::States(optimizer, {2, 2}, at::kFloat).size(); ++i) {
    result.states.push_back(Like(Units(), at::kFloat));
  }
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, Units(), {.stage = stage, .seed = 5, .optimizer = optimizer});
    for (int step = 1; step <= kSteps; ++step) {
      engine.BeginStep();
      const int rounds = (kMicroBatches + world - 1) / world;  // every rank makes as many calls
      for (int i = 0; i < rounds; ++i) engine.Backward(Loss(engine, step, i * world + rank), i + 1 == rounds);
      engine.FinishBackward();
      const double scale = 1.0 / kMicroBatches, norm = engine.GradNorm(scale);
      if (rank == 0) result.norms.push_back(norm);
      engine.Step(1e-2, scale * optim::ClipFactor(norm, 5.0), step);
    }
    for (const ShardView& shard : engine.Shards()) {
      const auto put = [&](Named& into, const at::Tensor& rows) {
        into.at(shard.name).narrow(0, shard.rows.lo, shard.rows.size()).copy_(rows);
      };
      put(result.masters, shard.master);
      for (size_t i = 0; i < shard.state.size(); ++i) put(result.states[i], shard.state[i]);
    }
  });
  return result;
}

void ExpectSameBytes(const Named& got, const Named& reference, const std::string& what) {
  for (const auto& [name, r] : reference) EXPECT_TRUE(at::equal(got.at(name), r)) << what << ", " << name;
}

void ExpectNoDifference(const optim::Options& optimizer) {
  const Result reference = TrainSteps(optimizer, 0, 1);
  EXPECT_GT(reference.norms[0], 5.0) << "meant to be clipped";
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world : kWorlds) {
      const std::string what = "stage " + std::to_string(stage) + " of " + std::to_string(world);
      const Result got = TrainSteps(optimizer, stage, world);
      EXPECT_EQ(got.norms, reference.norms) << what;
      ExpectSameBytes(got.masters, reference.masters, what);
      ASSERT_EQ(got.states.size(), reference.states.size());
      for (size_t i = 0; i < got.states.size(); ++i) ExpectSameBytes(got.states[i], reference.states[i], what);
    }
  }
}

// Rows 8 (an empty shard is no trouble), 34 and 35 (the norm is global, and what is replicated counts once) of the
// table of other engines' bugs.
TEST(EngineSlicing, AdamWIsTheSameBytesWhoeverOwnsTheRows_Bug8_34_35) { ExpectNoDifference(optim::AdamWOptions{}); }
TEST(EngineSlicing, SgdIsTheSameBytesWhoeverOwnsTheRows_Bug8_34_35) {
  ExpectNoDifference(optim::SgdOptions{0.9, true, 0.1});
  ExpectNoDifference(optim::SgdOptions{0.0, false, 0.1});
}

}  // namespace
}  // namespace trainyard::engine::testing
