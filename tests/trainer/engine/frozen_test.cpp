// Parameters that are not trained: gradients of the others are right, and frozen ones cost their weights and no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"

namespace trainyard::engine::testing {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr int64_t kWidth = 6, kBatch = 12;

ParamSpec Matrix(const std::string& name, bool frozen) {
  ParamSpec spec{name, {kWidth, kWidth}, Init::kNormal, 0.5};
  spec.frozen = frozen;
  return spec;
}

// A frozen start, through which no gradient flows; a unit of both kinds whose frozen matrices come before and after the
// trained one; a frozen unit in the middle; a trained end.
std::vector<UnitSpec> Units() {
  return {{"start", {Matrix("start.w", true)}},
          {"mixed", {Matrix("mixed.f", true), Matrix("mixed.a", false), Matrix("mixed.g", true)}},
          {"ice", {Matrix("ice.w", true), Matrix("ice.v", true)}},
          {"end", {Matrix("end.a", false)}}};
}
constexpr int64_t kTrained = 2 * kWidth * kWidth, kFrozen = 5 * kWidth * kWidth;

at::Tensor Loss(ParameterHost& host, const std::vector<UnitSpec>& units, at::Tensor x) {
  for (size_t u = 0; u < units.size(); ++u) {
    host.PreForward(static_cast<int>(u));
    for (size_t i = 0; i < units[u].params.size(); ++i) {
      x = at::tanh(at::mm(x, host.Param(static_cast<int>(u), static_cast<int>(i))));
    }
    x = host.PostForward(static_cast<int>(u), x);
  }
  return x.square().sum();
}

at::Tensor Input(at::ScalarType type) {
  return at::rand({kBatch, kWidth}, at::detail::createCPUGenerator(kSeed), at::dtype(at::kDouble)).to(type);
}

struct Grid {
  int stage, ranks, owners;
};
std::vector<Grid> Grids() {
  std::vector<Grid> grids;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int ranks = 1; ranks <= 4; ++ranks) grids.push_back({stage, ranks, stage == 0 ? 1 : ranks});
    if (stage > 0) grids.push_back({stage, 4, 2});
  }
  return grids;
}
std::string Name(const Grid& g) {
  return "stage " + std::to_string(g.stage) + ", " + std::to_string(g.ranks / g.owners) + " x " +
         std::to_string(g.owners) + " ranks";
}

void OnGrid(const Grid& grid, at::ScalarType type,
            const std::function<void(int rank, Engine& engine, dist::Mesh& mesh)>& body,
            Offload offload = Offload::kNone) {
  RunRanks(grid.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, grid.owners);
    Engine engine(device, mesh, Units(),
                  {.stage = grid.stage,
                   .compute_dtype = type,
                   .offload = offload,
                   .offload_place = ScratchPlace(),
                   .seed = kSeed});
    body(rank, engine, mesh);
  });
}

void TrainStep(Engine& engine, const Grid& grid, int rank, at::ScalarType type, int step) {
  const int64_t part = kBatch / grid.ranks;
  engine.BeginStep();
  engine.Backward(Loss(engine, Units(), Input(type).narrow(0, rank * part, part)), true);
  engine.FinishBackward();
  EXPECT_GT(engine.GradNorm(1.0), 0.0);
  engine.Step(1e-2, 1.0, step);
}

TEST(EngineFrozen, GradientsOfTheOthersAreExactAndFrozenOnesHaveNone) {
  PlainHost host(Units(), at::kDouble, kSeed);
  Loss(host, Units(), Input(at::kDouble)).backward();
  const Named want = Gradients(host);
  for (const Grid& grid : Grids()) {
    SCOPED_TRACE(Name(grid));
    Named got = Like(Units(), at::kDouble);
    OnGrid(grid, at::kDouble, [&](int rank, Engine& engine, dist::Mesh&) {
      for (int step = 1; step <= 2; ++step) {  // the second with recorded order
        engine.BeginStep();
        const int64_t part = kBatch / grid.ranks;
        engine.Backward(Loss(engine, Units(), Input(at::kDouble).narrow(0, rank * part, part)), true);
        engine.FinishBackward();
      }
      CollectGradients(engine, got);
      EXPECT_FALSE(engine.GradRows(0, 0).defined());
      EXPECT_FALSE(engine.GradRows(1, 2).defined());
    });
    for (const char* name : {"mixed.a", "end.a"}) EXPECT_LE(RelativeError(got.at(name), want.at(name)), 1e-12) << name;
  }
}

TEST(EngineFrozen, WeightsStayAndAreTheSameEverywhere) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    PlainHost host(Units(), at::kFloat, kSeed);
    host.To(type);
    std::set<std::string> hashes;
    for (const Grid& grid : Grids()) {
      SCOPED_TRACE(Name(grid));
      OnGrid(grid, type, [&](int rank, Engine& engine, dist::Mesh&) {
        const std::string hash = engine.ParameterHash();
        if (rank == 0) hashes.insert(hash);
        TrainStep(engine, grid, rank, type, 1);
        for (const ShardView& s : engine.Shards()) {
          if (s.name.ends_with(".a")) continue;
          EXPECT_TRUE(s.state.empty());
          EXPECT_EQ(s.master.scalar_type(), type) << "kept in the type that computes";
          host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
            if (spec.name != s.name) return;
            EXPECT_TRUE(at::equal(s.master, p.narrow(0, s.rows.lo, s.rows.size())));
          });
        }
        EXPECT_NE(engine.ParameterHash(), hash) << "the others were trained";
      });
    }
    EXPECT_EQ(hashes.size(), 1u) << type;
  }
}

TEST(EngineFrozen, LoadedWeightsReachEveryRank) {
  PlainHost host(Units(), at::kDouble, kSeed + 1);
  const double want = Loss(host, Units(), Input(at::kDouble)).item<double>();
  for (const Grid& grid : Grids()) {
    for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
      SCOPED_TRACE(Name(grid) + ", offload " + std::to_string(static_cast<int>(offload)));
      OnGrid(
          grid, at::kDouble,
          [&](int rank, Engine& engine, dist::Mesh&) {
            TrainStep(engine, grid, rank, at::kDouble, 1);
            engine.VisitShards(true, [&](int, const std::vector<ShardView>& shards) {
              for (const ShardView& s : shards) {
                host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
                  if (spec.name == s.name) s.master.copy_(p.detach().narrow(0, s.rows.lo, s.rows.size()));
                });
              }
            });
            engine.OnLoaded();
            for (int pass = 0; pass < 2; ++pass) {
              at::NoGradGuard no_grad;
              EXPECT_NEAR(Loss(engine, Units(), Input(at::kDouble)).item<double>(), want, 1e-12 * want);
            }
          },
          offload);
    }
  }
}

// What is loaded anyway need not be drawn: then all is as though it had been.
TEST(EngineFrozen, WhatIsLoadedNeedNotBeDrawn) {
  for (const Grid& grid : Grids()) {
    for (const Draw draw : {Draw::kTrained, Draw::kNone}) {
      SCOPED_TRACE(Name(grid));
      Named full = Like(Units(), at::kDouble);
      std::string drawn;
      OnGrid(grid, at::kDouble, [&](int rank, Engine& engine, dist::Mesh&) {
        CollectMasters(engine, full);
        const std::string hash = engine.ParameterHash();
        if (rank == 0) drawn = hash;
      });
      RunRanks(grid.ranks, [&](int, device::Device& device, dist::Comm& comm) {
        dist::Mesh mesh(comm, grid.owners);
        Engine engine(device, mesh, Units(),
                      {.stage = grid.stage, .compute_dtype = at::kDouble, .seed = kSeed, .draw = draw});
        engine.VisitShards(true, [&](int u, const std::vector<ShardView>& shards) {
          for (size_t i = 0; i < shards.size(); ++i) {
            if (draw == Draw::kTrained && !engine.unit(u).params[i].frozen) continue;
            const RowRange rows = shards[i].rows;
            shards[i].master.copy_(full.at(shards[i].name).narrow(0, rows.lo, rows.size()));
          }
        });
        engine.OnLoaded();
        EXPECT_EQ(engine.ParameterHash(), drawn);
      });
    }
  }
}

TEST(EngineFrozen, CostsItsWeightsAndNothingElse) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const int64_t e = type == at::kFloat ? 4 : 2;
    for (const Grid& grid : Grids()) {
      SCOPED_TRACE(Name(grid));
      OnGrid(grid, type, [&](int rank, Engine& engine, dist::Mesh&) {
        TrainStep(engine, grid, rank, type, 1);
        const MemoryReport memory = engine.memory();
        if (rank > 0 || kWidth % grid.owners != 0) return;  // rows that the owners divide without padding
        EXPECT_EQ(memory.optimizer, 8 * kTrained / grid.owners);
        EXPECT_EQ(memory.gradients, 4 * kTrained / grid.owners);
        const bool frees = grid.stage == 3 && grid.owners > 1;
        EXPECT_EQ(memory.params, frees ? 0 : e * (kTrained + kFrozen));
        // The masters of the trained, where they are not rows of the full tensors, and what is gathered from.
        const int64_t trained = frees || type == at::kBFloat16 ? 4 * kTrained / grid.owners : 0;
        EXPECT_EQ(memory.master, trained + (frees ? e * kFrozen / grid.owners : 0));
      });
    }
  }
}

TEST(EngineFrozen, IsGatheredInStageThreeOnly) {
  for (int stage = 1; stage <= 3; ++stage) {
    OnGrid({stage, 2, 2}, at::kFloat, [&](int rank, Engine& engine, dist::Mesh& mesh) {
      const Grid grid{stage, 2, 2};
      TrainStep(engine, grid, rank, at::kFloat, 1);
      const int64_t before = mesh.shard().payload_bytes(dist::Call::kAllGather);
      engine.BeginStep();
      engine.Backward(Loss(engine, Units(), Input(at::kFloat).narrow(0, rank * 6, 6)), true);
      engine.FinishBackward();
      // Forward and backward, but the start, through which none flows, and the end, which is needed at once, only once.
      const int64_t twice = 4 * kWidth * kWidth * (1 + 3 * 2 + 2 * 2 + 1);
      EXPECT_EQ(mesh.shard().payload_bytes(dist::Call::kAllGather) - before, stage == 3 ? twice : 4 * kTrained);
    });
  }
}

// A frozen unit brings no gradient that would tell that backward has left it.
TEST(EngineFrozen, UnitsAreFreedAsBackwardLeavesThem) {
  std::vector<UnitSpec> units = {{"start", {Matrix("start.a", false)}}};
  for (int u = 0; u < 8; ++u) units.push_back({"ice" + std::to_string(u), {Matrix("w" + std::to_string(u), true)}});
  RunRanks(2, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units, {.stage = 3, .compute_dtype = at::kDouble, .seed = kSeed});
    for (int step = 1; step <= 2; ++step) {
      engine.BeginStep();
      engine.Backward(Loss(engine, units, Input(at::kDouble)), true);
      engine.FinishBackward();
      engine.Step(1e-2, 1.0, step);
    }
    EXPECT_LE(engine.memory().peak_params, 2 * 8 * kWidth * kWidth) << "the unit in use and one more";
    EXPECT_EQ(engine.memory().params, 0);
  });
}

}  // namespace
}  // namespace trainyard::engine::testing
