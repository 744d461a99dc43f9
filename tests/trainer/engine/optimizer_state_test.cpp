// Optimizers whose state is not of the shape of the parameter, in the engine: 8-bit AdamW, whose packed rows have the
// same bytes at every stage, grid and place of offload, and Adafactor, whose statistics of columns are sums over the
// owners. Saved on one grid and loaded on another, training goes on as if nothing had been.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"
#include "trainer/model/family.h"

namespace trainyard::engine::testing {
namespace {

constexpr int kMicroBatches = 8;

// A large matrix with a short last block and rows that no number of ranks divides, a small one, vectors, and a matrix
// of fewer rows than there are ranks.
std::vector<UnitSpec> Units() {
  const auto param = [](const char* name, std::vector<int64_t> shape) {
    return ParamSpec{name, std::move(shape), Init::kNormal, 0.02, name[0] != 'b'};
  };
  return {{"root", {param("large", {17, 300}), param("bias", {7})}, false},
          {"block", {param("small", {9, 11}), param("wide", {2, 4100}), param("bulk", {5})}, true}};
}

// Gradients are small whole numbers, so that their sums are exact.
at::Tensor Coefficients(const ParamSpec& spec, int step, int micro_batch) {
  const at::Tensor index = at::arange(spec.numel(), at::kLong);
  const at::Tensor mixed =
      index * 7919 + static_cast<int64_t>(spec.name.size()) * 104729 + step * 31 + micro_batch * 17;
  return mixed.remainder(23).sub(11).to(at::kFloat).view(spec.shape);
}

at::Tensor Loss(Engine& engine, int step, int micro_batch) {
  at::Tensor loss = at::zeros({});
  for (int u = 0; u < engine.unit_count(); ++u) {
    engine.PreForward(u);
    at::Tensor sum = at::zeros({});
    const auto& params = engine.unit(u).params;
    for (size_t i = 0; i < params.size(); ++i) {
      const at::Tensor& p = engine.Param(u, static_cast<int>(i));
      sum = sum + (p * Coefficients(params[i], step, micro_batch).to(p.scalar_type())).sum();
    }
    loss = loss + engine.PostForward(u, sum).to(at::kFloat);
  }
  return loss;
}

struct Case {
  int stage, ranks, owners;
  Offload offload = Offload::kNone;
  at::ScalarType type = at::kFloat;
};
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int ranks : {1, 2, 4}) cases.push_back({stage, ranks, stage == 0 ? 1 : ranks, offload});
      if (stage > 0) cases.push_back({stage, 4, 2, offload});
    }
  }
  return cases;
}
std::string Name(const Case& c) {
  return "stage " + std::to_string(c.stage) + ", " + std::to_string(c.ranks / c.owners) + " x " +
         std::to_string(c.owners) + " ranks, offload " + std::to_string(static_cast<int>(c.offload));
}

// Masters by name, and state as "name.state"; whole.
Named Whole(const optim::Options& optimizer) {
  Named whole = Like(Units(), at::kFloat);
  for (const UnitSpec& unit : Units()) {
    for (const ParamSpec& spec : unit.params) {
      for (const optim::State& s : optim::States(optimizer, spec.shape, at::kFloat)) {
        whole[spec.name + "." + s.name] = at::empty(s.shape, s.type);
      }
    }
  }
  return whole;
}

void Exchange(Engine& engine, Named& whole, bool load) {
  const auto copy = [load](const at::Tensor& whole_rows, const at::Tensor& mine) {
    load ? mine.copy_(whole_rows) : whole_rows.copy_(mine);
  };
  engine.VisitShards(load, [&](int u, const std::vector<ShardView>& shards) {
    for (const ShardView& s : shards) {
      copy(whole.at(s.name).narrow(0, s.rows.lo, s.rows.size()), s.master);
      for (size_t i = 0; i < s.state.size(); ++i) {
        const StateBox& box = s.state_box[i];
        const at::Tensor rows = whole.at(s.name + "." + box.name).narrow(0, box.rows.lo, box.rows.size());
        copy(rows, s.state[i]);
        if (load) continue;
        at::Tensor again = at::empty_like(s.state[i], at::MemoryFormat::Contiguous);
        EXPECT_EQ(again.scalar_type(), box.type);
        if (engine.state_in_memory()) {
          engine.CopyShard(u, s.index, static_cast<int>(i) + 1, again.mutable_data_ptr());
          EXPECT_TRUE(at::equal(again, s.state[i])) << s.name << "." << box.name;
        }
      }
    }
  });
  if (load) engine.OnLoaded();
}

// Steps from..to; starts from `start` where it is given. What is left, whole.
Named Train(const optim::Options& optimizer, const Case& c, int from, int to, Named* start = nullptr) {
  Named result = Whole(optimizer);
  RunRanks(c.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, c.owners);
    Engine engine(device, mesh, Units(),
                  {.stage = c.stage,
                   .compute_dtype = c.type,
                   .offload = c.offload,
                   .offload_place = ScratchPlace(),
                   .seed = 5,
                   .optimizer = optimizer});
    if (start) Exchange(engine, *start, true);
    for (int step = from; step <= to; ++step) {
      engine.BeginStep();
      const int mine = kMicroBatches / c.ranks;
      for (int m = 0; m < mine; ++m) engine.Backward(Loss(engine, step, rank * mine + m), m == mine - 1);
      engine.FinishBackward();
      engine.Step(1e-2, 1.0 / 64, step);
    }
    Exchange(engine, result, false);
  });
  return result;
}

const optim::AdamW8bitOptions kEightBit{{0.9, 0.95, 1e-8, 0.1}};
const optim::AdafactorOptions kFactored{.weight_decay = 0.1};

void ExpectEqual(const Named& got, const Named& want, const std::string& what) {
  for (const auto& [name, t] : want) EXPECT_TRUE(at::equal(got.at(name), t)) << what << ": " << name;
}
void ExpectClose(const Named& got, const Named& want, const std::string& what) {
  for (const auto& [name, t] : want) EXPECT_LE(RelativeError(got.at(name), t), 1e-6) << what << ": " << name;
}

TEST(EngineAdamW8bit, HasTheSameBytesOnEveryGrid) {
  const Named want = Train(kEightBit, {0, 1, 1}, 1, 4);
  EXPECT_EQ(want.at("large.exp_avg_8bit").size(1), 300 + 8);
  EXPECT_EQ(want.at("small.exp_avg").scalar_type(), at::kFloat);
  for (const Case& c : Cases()) ExpectEqual(Train(kEightBit, c, 1, 4), want, Name(c));
}

TEST(EngineAdafactor, IsTheSameOnEveryGrid) {
  const Named want = Train(kFactored, {0, 1, 1}, 1, 4);
  for (const Case& c : Cases()) ExpectClose(Train(kFactored, c, 1, 4), want, Name(c));
}

TEST(EngineAdafactor, RunsAgainToTheSameBytes) {
  for (const Case& c : {Case{3, 4, 2}, Case{1, 4, 4}})
    ExpectEqual(Train(kFactored, c, 1, 4), Train(kFactored, c, 1, 4), Name(c));
}

// Master weights of another type than the full tensors.
TEST(EngineAdamW8bit, HasTheSameBytesInBf16) {
  const Named want = Train(kEightBit, {0, 1, 1, Offload::kNone, at::kBFloat16}, 1, 3);
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (const Case& c : {Case{1, 2, 2, offload, at::kBFloat16}, Case{3, 4, 2, offload, at::kBFloat16}}) {
      ExpectEqual(Train(kEightBit, c, 1, 3), want, Name(c));
    }
  }
}

TEST(EngineOptimizerState, GoesOnOnAnotherGrid) {
  const std::vector<Case> grids = {
      {0, 2, 1}, {1, 4, 2}, {2, 1, 1, Offload::kCpu}, {3, 4, 4}, {3, 4, 2, Offload::kNvme}, {3, 2, 2, Offload::kCpu}};
  const Named eight_bit = Train(kEightBit, {0, 1, 1}, 1, 4), factored = Train(kFactored, {0, 1, 1}, 1, 4);
  for (const Case& before : grids) {
    Named first = Train(kEightBit, before, 1, 2), second = Train(kFactored, before, 1, 2);
    for (const Case& after : grids) {
      const std::string what = Name(before) + ", then " + Name(after);
      ExpectEqual(Train(kEightBit, after, 3, 4, &first), eight_bit, what);
      ExpectClose(Train(kFactored, after, 3, 4, &second), factored, what);
    }
  }
}

// Over all ranks every row of every tensor is written once.
TEST(EngineOptimizerState, IsWrittenOnce) {
  for (const optim::Options& optimizer : {optim::Options(kEightBit), optim::Options(kFactored)}) {
    for (const Case& c : Cases()) {
      std::map<std::string, std::vector<int>> written;
      std::mutex mutex;
      RunRanks(c.ranks, [&](int, device::Device& device, dist::Comm& comm) {
        dist::Mesh mesh(comm, c.owners);
        Engine engine(
            device, mesh, Units(),
            {.stage = c.stage, .offload = c.offload, .offload_place = ScratchPlace(), .optimizer = optimizer});
        for (const ShardView& s : engine.Shards()) {
          ASSERT_EQ(s.state.size(), s.state_box.size());
          std::lock_guard lock(mutex);
          for (const StateBox& box : s.state_box) {
            auto& rows = written[s.name + "." + box.name];
            rows.resize(static_cast<size_t>(box.global_shape[0]));
            for (int64_t r = box.rows.lo; r < box.rows.hi; ++r) ++rows[static_cast<size_t>(r)];
          }
        }
      });
      for (const auto& [name, rows] : written) {
        for (const int times : rows) EXPECT_EQ(times, 1) << name << ", " << Name(c);
      }
    }
  }
}

TEST(EngineOptimizerState, IsRefusedWhereItCannotBe) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    const auto make = [&](EngineOptions options) { Engine engine(device, comm, Units(), std::move(options)); };
    EXPECT_THROW(make({.compute_dtype = at::kDouble, .optimizer = kEightBit}), std::invalid_argument);
    EXPECT_THROW(make({.compute_dtype = at::kDouble, .optimizer = kFactored}), std::invalid_argument);
    EXPECT_THROW(make({.optimizer = kFactored, .exact_micro_batches = 8}), std::invalid_argument);
    EXPECT_NO_THROW(make({.optimizer = kEightBit, .exact_micro_batches = 8}));
  });
}

// A small Llama on text that repeats itself: few bytes of state cost little.
TEST(EngineOptimizerState, TrainsASmallModelAsAdamWDoes) {
  const auto last_loss = [](const optim::Options& optimizer) {
    double loss = 0;
    RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
      const model::Config config = model::LlamaConfig{
          .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 160, .vocab = 97, .max_positions = 32};
      Engine engine(device, comm, model::Units(config), {.seed = 3, .optimizer = optimizer});
      const auto model = model::Make(config, engine, model::ActivationCheckpointing::kNone);
      const at::Tensor tokens = Tokens(4, 32, 97, 11);
      for (int step = 1; step <= 60; ++step) {
        engine.BeginStep();
        at::Tensor sum = model->LossSum(tokens);
        loss = sum.item<double>() / (4 * 32);
        engine.Backward(std::move(sum), true);
        engine.FinishBackward();
        engine.Step(3e-3, 1.0 / (4 * 32), step);
      }
    });
    return loss;
  };
  const double start = std::log(97.0), adamw = last_loss(optim::AdamWOptions{});
  const double eight_bit = last_loss(kEightBit), factored = last_loss(kFactored);
  std::printf("loss after 60 steps from %.3f: AdamW %.4f, AdamW8bit %.4f, Adafactor %.4f\n", start, adamw, eight_bit,
              factored);
  EXPECT_LT(adamw, 0.5 * start);
  EXPECT_NEAR(eight_bit, adamw, 0.05 * start);
  EXPECT_LT(factored, 0.7 * start);
}

}  // namespace
}  // namespace trainyard::engine::testing
