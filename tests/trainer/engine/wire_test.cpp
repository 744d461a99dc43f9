// Bytes that a step hands to the wire, against what shapes, stage and mesh say.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"

namespace trainyard::engine::testing {
namespace {

constexpr int64_t kLength = 7;

struct Case {
  int stage, ranks, owners;
  at::ScalarType type;
  int rounds;
  bool each;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "stage " << c.stage << ", " << c.ranks / c.owners << " x " << c.owners << " ranks, " << c.type << ", "
       << c.rounds << " micro-batches" << (c.each ? "" : ", reduced once");
}

struct Wire {
  int64_t gather = 0, scatter = 0, sum = 0;  // all-gather and reduce-scatter of owners, all-reduce of replicas
  friend bool operator==(const Wire&, const Wire&) = default;
};
void PrintTo(const Wire& w, std::ostream* out) {
  *out << "gather " << w.gather << ", scatter " << w.scatter << ", sum " << w.sum;
}

// Unit 0 is the root, which is used at both ends of the model and stays gathered between; the last block is the first
// that backward needs and stays too.
Wire Theory(const Case& c, const std::vector<UnitSpec>& units) {
  const int64_t e = c.type == at::kBFloat16 ? 2 : c.type == at::kFloat ? 4 : 8, m = c.type == at::kDouble ? 8 : 4;
  const int64_t reductions = c.stage >= 2 && c.each ? c.rounds : 1;
  Wire wire;
  for (size_t u = 0; u < units.size(); ++u) {
    int64_t own = 0;  // of one owner, padded
    for (const ParamSpec& p : units[u].params) own += (p.rows() + c.owners - 1) / c.owners * p.row_size();
    if (c.owners > 1) {
      const bool once = u == 0 || u + 1 == units.size();
      wire.gather += c.owners * own * e * (c.stage < 3 ? 1 : c.rounds * (once ? 1 : 2));
      wire.scatter += c.owners * own * m * reductions;
    }
    if (c.owners < c.ranks) wire.sum += own * m;
  }
  return wire;
}

Wire Measured(const Case& c, const model::LlamaConfig& config) {
  Wire wire;
  RunRanks(c.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, c.owners);
    Engine engine(device, mesh, model::LlamaUnits(config),
                  {.stage = c.stage, .compute_dtype = c.type, .reduce_each_micro_batch = c.each, .seed = 3});
    model::Llama llama(config, engine);
    const auto sent = [&] {
      return Wire{mesh.shard().payload_bytes(dist::Call::kAllGather),
                  mesh.shard().payload_bytes(dist::Call::kReduceScatter),
                  mesh.replicate().payload_bytes(dist::Call::kAllReduce)};
    };
    Wire before;
    for (int step = 1; step <= 2; ++step) {
      before = sent();
      engine.BeginStep();
      for (int round = 0; round < c.rounds; ++round) {
        const at::Tensor tokens = Tokens(1, kLength, config.vocab, 10 * rank + round);
        engine.Backward(llama.LossSum(tokens), round + 1 == c.rounds);
      }
      engine.FinishBackward();
      engine.Step(1e-3, 1.0, step);
    }
    const Wire after = sent();
    if (rank == 0) wire = {after.gather - before.gather, after.scatter - before.scatter, after.sum - before.sum};
    EXPECT_EQ(mesh.shard().payload_bytes() - after.gather - after.scatter, 0) << "nothing else";
  });
  return wire;
}

TEST(EngineWire, BytesPerStepAreThoseOfTheory_Bug39) {
  const model::LlamaConfig config = SmallLlama(false);
  const auto units = model::LlamaUnits(config);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const int rounds : {1, 3}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (const auto& [ranks, owners] : {std::pair{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 2}, {6, 3}}) {
          if (stage == 0 && owners != ranks) continue;
          for (const bool each : {true, false}) {
            if (!each && stage < 2) continue;
            const Case c{stage, ranks, stage == 0 ? 1 : owners, type, rounds, each};
            EXPECT_EQ(Measured(c, config), Theory(c, units)) << ::testing::PrintToString(c);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::testing
