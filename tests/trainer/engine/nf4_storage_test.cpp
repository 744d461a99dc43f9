// Frozen parameters in NF4: the same packed rows at every stage and world size, gathered and freed as the others are,
// and no byte more than they need.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::engine::testing {
namespace {

constexpr uint64_t kSeed = 99;
constexpr int64_t kIn = 70, kOut = 5, kBatch = 12;  // two blocks in a row; rows that no number of ranks divides

ParamSpec Matrix(const std::string& name, int64_t rows, int64_t size, bool nf4, bool frozen) {
  ParamSpec spec{name, {rows, size}, Init::kNormal, 0.2};
  spec.frozen = frozen;
  spec.nf4 = nf4;
  return spec;
}

// Packed matrices before and after a trained one and beside a frozen one; a unit of nothing else.
std::vector<UnitSpec> Units() {
  return {{"mixed",
           {Matrix("mixed.q", kOut, kIn, true, true), Matrix("mixed.a", kOut, kIn, false, false),
            Matrix("mixed.f", kOut, kIn, false, true), Matrix("mixed.r", kOut, kIn, true, true)}},
          {"ice", {Matrix("ice.q", kIn, kOut, true, true)}},
          {"end", {Matrix("end.a", kOut, kIn, false, false)}}};
}
const int64_t kPacked = 2 * kOut * quant::Nf4RowBytes(kIn) + kIn * quant::Nf4RowBytes(kOut);

at::Tensor Numbers(const ParamSpec& spec) {
  const at::Tensor numbers = at::empty(spec.shape, at::kFloat);
  InitElements(spec, kSeed, 0, spec.numel(), numbers.mutable_data_ptr<float>());
  return numbers;
}

at::Tensor Weight(ParameterHost& host, int unit, int index, at::ScalarType type) {
  const ParamSpec spec = Units()[static_cast<size_t>(unit)].params[static_cast<size_t>(index)];
  const at::Tensor& p = host.Param(unit, index);
  return spec.nf4 && p.scalar_type() == at::kByte ? quant::Nf4Dequantise(p, spec.row_size(), type) : p;
}

at::Tensor Loss(ParameterHost& host, at::Tensor x) {
  const at::ScalarType type = x.scalar_type();
  host.PreForward(0);
  at::Tensor y = at::zeros({x.size(0), kOut}, x.options());
  for (int i = 0; i < 4; ++i) y = at::tanh(y + at::mm(x, Weight(host, 0, i, type).t()));
  y = host.PostForward(0, y);
  host.PreForward(1);
  y = host.PostForward(1, at::tanh(at::mm(y, Weight(host, 1, 0, type).t())));
  host.PreForward(2);
  y = host.PostForward(2, at::mm(y, Weight(host, 2, 0, type).t()));
  return y.square().sum();
}

at::Tensor Input(at::ScalarType type) {
  return at::rand({kBatch, kIn}, at::detail::createCPUGenerator(kSeed), at::dtype(at::kDouble)).to(type);
}

struct Case {
  int stage, ranks, owners;
  Offload offload;
};
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int ranks = 1; ranks <= 4; ++ranks) cases.push_back({stage, ranks, stage == 0 ? 1 : ranks, offload});
      if (stage > 0) cases.push_back({stage, 4, 2, offload});
    }
  }
  return cases;
}
std::string Name(const Case& c) {
  return "stage " + std::to_string(c.stage) + ", " + std::to_string(c.ranks / c.owners) + " x " +
         std::to_string(c.owners) + " ranks, offload " + std::to_string(static_cast<int>(c.offload));
}

void On(const Case& c, at::ScalarType type, const std::function<void(int rank, Engine& engine)>& body) {
  SCOPED_TRACE(Name(c));
  RunRanks(c.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, c.owners);
    Engine engine(device, mesh, Units(),
                  {.stage = c.stage,
                   .compute_dtype = type,
                   .offload = c.offload,
                   .offload_place = ScratchPlace(),
                   .poison_freed = c.ranks == 3,
                   .seed = kSeed});
    body(rank, engine);
  });
}

void Backward(Engine& engine, const Case& c, int rank, at::ScalarType type) {
  const int64_t part = kBatch / c.ranks;
  engine.BeginStep();
  engine.Backward(Loss(engine, Input(type).narrow(0, rank * part, part)), true);
  engine.FinishBackward();
}

// A host of plain numbers: those that the packed rows stand for.
PlainHost Reference(const std::function<at::Tensor(const ParamSpec&)>& numbers) {
  PlainHost host(Units(), at::kDouble, kSeed);
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    at::NoGradGuard no_grad;
    if (spec.nf4) p.copy_(quant::Nf4Dequantise(quant::Nf4Quantise(numbers(spec)), spec.row_size(), at::kDouble));
  });
  return host;
}

TEST(EngineNf4, GradientsAreThoseOfTheNumbersThatTheRowsStandFor) {
  PlainHost host = Reference(Numbers);
  Loss(host, Input(at::kDouble)).backward();
  const Named want = Gradients(host);
  for (const Case& c : Cases()) {
    Named got = Like(Units(), at::kDouble);
    On(c, at::kDouble, [&](int rank, Engine& engine) {
      for (int step = 1; step <= 2; ++step) Backward(engine, c, rank, at::kDouble);  // the second with recorded order
      CollectGradients(engine, got);
    });
    for (const char* name : {"mixed.a", "end.a"})
      EXPECT_LE(RelativeError(got.at(name), want.at(name)), 1e-12) << Name(c);
  }
}

TEST(EngineNf4, RowsAreTheSameBytesEverywhere) {
  std::set<std::string> hashes;
  for (const Case& c : Cases()) {
    On(c, at::kBFloat16, [&](int rank, Engine& engine) {
      const std::string hash = engine.ParameterHash();
      if (rank == 0) hashes.insert(hash);
      Backward(engine, c, rank, at::kBFloat16);
      engine.Step(1e-2, 1.0, 1);
      engine.VisitShards(false, [&](int u, const std::vector<ShardView>& shards) {
        for (size_t i = 0; i < shards.size(); ++i) {
          const ParamSpec& spec = engine.unit(u).params[i];
          if (!spec.nf4) continue;
          EXPECT_EQ(shards[i].global_shape, spec.shape);
          EXPECT_TRUE(shards[i].state.empty());
          EXPECT_TRUE(at::equal(shards[i].master,
                                quant::Nf4Quantise(Numbers(spec).narrow(0, shards[i].rows.lo, shards[i].rows.size()))));
          at::Tensor copy = at::empty_like(shards[i].master);
          engine.CopyShard(u, static_cast<int>(i), 0, copy.mutable_data_ptr());
          EXPECT_TRUE(at::equal(copy, shards[i].master));
        }
      });
    });
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(EngineNf4, LoadedRowsReachEveryRank) {
  const auto loaded = [](const ParamSpec& spec) { return Numbers(spec).flip(0).mul(1.5); };
  PlainHost host = Reference(loaded);
  const double want = Loss(host, Input(at::kDouble)).item<double>();
  for (const Case& c : Cases()) {
    On(c, at::kDouble, [&](int, Engine& engine) {
      engine.VisitShards(true, [&](int u, const std::vector<ShardView>& shards) {
        for (size_t i = 0; i < shards.size(); ++i) {
          const ParamSpec& spec = engine.unit(u).params[i];
          if (!spec.nf4) continue;
          const RowRange rows = shards[i].rows;
          shards[i].master.copy_(quant::Nf4Quantise(loaded(spec).narrow(0, rows.lo, rows.size())));
        }
      });
      engine.OnLoaded();
      at::NoGradGuard no_grad;
      for (int pass = 0; pass < 2; ++pass) {
        EXPECT_NEAR(Loss(engine, Input(at::kDouble)).item<double>(), want, 1e-12 * want);
      }
    });
  }
}

TEST(EngineNf4, CostsItsPackedRowsAndNothingElse) {
  constexpr int64_t kNumbers = kOut * kIn;  // of one matrix
  for (const Case& c : Cases()) {
    if (c.owners != 1) continue;  // without padding
    On(c, at::kBFloat16, [&](int rank, Engine& engine) {
      Backward(engine, c, rank, at::kBFloat16);
      engine.Step(1e-2, 1.0, 1);
      const MemoryReport memory = engine.memory();
      const bool frees = c.stage == 3 && c.offload != Offload::kNone;
      EXPECT_EQ(memory.params, frees ? 0 : kPacked + 2 * 3 * kNumbers);
      EXPECT_EQ(memory.gradients, 4 * 2 * kNumbers);
      EXPECT_EQ(memory.optimizer + memory.host_optimizer, c.offload == Offload::kNvme ? 0 : 8 * 2 * kNumbers);
      if (c.offload == Offload::kNone) {
        EXPECT_EQ(memory.master, 4 * 2 * kNumbers);
      }
      const int64_t trained = c.offload == Offload::kCpu ? 4 * 2 * kNumbers : 2 * 2 * kNumbers;
      if (frees) {
        EXPECT_EQ(memory.host_master + memory.host_weights, kPacked + trained + 2 * kNumbers);
      }
    });
  }
}

// Each rank holds ceil(rows / owners) of every parameter; what is gathered is freed, and travels as bytes.
TEST(EngineNf4, IsShardedAndGatheredAsBytes) {
  RunRanks(2, [&](int, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, 2);
    Engine engine(device, mesh, Units(), {.stage = 3, .compute_dtype = at::kBFloat16, .seed = kSeed});
    const int64_t packed = 2 * 3 * quant::Nf4RowBytes(kIn) + kIn / 2 * quant::Nf4RowBytes(kOut), numbers = 3 * kIn;
    EXPECT_EQ(engine.memory().params, 0);
    EXPECT_EQ(engine.memory().master, packed + 4 * 2 * numbers + 2 * numbers);
    const int64_t before = mesh.shard().payload_bytes(dist::Call::kAllGather);
    at::NoGradGuard no_grad;
    Loss(engine, Input(at::kBFloat16));
    EXPECT_EQ(mesh.shard().payload_bytes(dist::Call::kAllGather) - before, 2 * (packed + 2 * 3 * numbers));
    EXPECT_EQ(engine.memory().params, 0);
    EXPECT_EQ(engine.memory().buffers, 0);
  });
}

TEST(EngineNf4, IsForFrozenParametersOnly) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    EXPECT_THROW(Engine(device, comm, {{"u", {Matrix("u.q", 4, 4, true, false)}}}, {}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace trainyard::engine::testing
