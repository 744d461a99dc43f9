// Master weights and optimizer state in host memory and in a file: the same bits as on the device, the bytes that the
// tables promise, and what happens when the storage fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "tests/trainer/engine/harness.h"
#include "trainer/dist/mesh.h"
#include "trainer/engine/offload_file.h"

namespace trainyard::engine::testing {
namespace {

// Full tensors begin at other addresses with offload than without: products must not be rounded by that.
[[maybe_unused]] const int strict = setenv("MKL_CBWR", "AUTO,STRICT", 0);

constexpr uint64_t kSeed = 31;
constexpr int64_t kLength = 7, kBatch = 12;

struct Case {
  int stage = 0;
  int ranks = 1;
  int owners = 1;
  at::ScalarType type = at::kFloat;
  int64_t exact = 0;  // exact_micro_batches
  bool momentum = false;

  std::string Name() const {
    return "stage " + std::to_string(stage) + ", " + std::to_string(ranks / owners) + " x " + std::to_string(owners) +
           " ranks, " + c10::toString(type) + (exact > 0 ? ", exact" : "") + (momentum ? ", SGD" : "");
  }
};

EngineOptions OptionsOf(const Case& c, Offload offload) {
  EngineOptions options;
  options.stage = c.stage;
  options.compute_dtype = c.type;
  options.offload = offload;
  options.offload_place = ScratchPlace();
  options.poison_freed = c.ranks > 1;
  options.seed = kSeed;
  options.exact_micro_batches = c.exact;
  if (c.momentum) options.optimizer = optim::SgdOptions{0.9};
  return options;
}

// The last half of the vocabulary's rows never trains.
std::vector<UnitSpec> UnitsOf() { return model::LlamaUnits(SmallLlama(true)); }

Named Blank() {
  Named full;
  for (const auto& [name, t] : Like(UnitsOf(), at::kFloat)) {
    full[name] = t;
    for (const char* state : {".0", ".1"}) full[name + state] = t.clone();
  }
  return full;
}

struct Trained {
  Named state = Blank();
  std::vector<double> losses;
  std::string hash;
  int64_t wire = 0;  // bytes of rank 0
};

// Steps first+1 .. last, from `from` if given.
Trained Train(const Case& c, Offload offload, int first, int last, const Named* from = nullptr) {
  const model::LlamaConfig config = SmallLlama(true);
  Trained out;
  std::vector<std::vector<double>> losses(c.ranks);
  RunRanks(c.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    dist::Mesh mesh(comm, c.owners);
    EngineOptions options = OptionsOf(c, offload);
    if (from != nullptr) options.seed = kSeed + 1;  // all is loaded
    Engine engine(device, mesh, UnitsOf(), options);
    if (from != nullptr) LoadState(engine, *from);
    model::Llama llama(config, engine);
    for (int step = first + 1; step <= last; ++step) {
      const at::Tensor tokens = Tokens(kBatch, kLength, config.vocab, static_cast<uint64_t>(step));
      const int64_t part = kBatch / c.ranks / 2;
      engine.BeginStep();
      for (int m = 0; m < 2; ++m) {
        at::Tensor loss = llama.LossSum(tokens.narrow(0, (2 * rank + m) * part, part));
        losses[rank].push_back(loss.item<double>());
        engine.Backward(std::move(loss), m == 1);
      }
      ASSERT_TRUE(engine.FinishBackward()) << engine.ExactReason();
      const double scale = 1.0 / (kBatch * kLength);
      engine.Step(1e-2, scale * optim::ClipFactor(engine.GradNorm(scale), 0.5), step);
    }
    CollectState(engine, out.state);
    const std::string hash = engine.ParameterHash();
    if (rank == 0) {
      out.hash = hash;
      out.wire = comm.payload_bytes(dist::Call::kAllGather);
    }
  });
  for (const auto& of_rank : losses) out.losses.insert(out.losses.end(), of_rank.begin(), of_rank.end());
  return out;
}

void ExpectSameBits(const Trained& got, const Trained& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.hash, want.hash);
  for (const auto& [name, t] : want.state) {
    const at::Tensor& other = got.state.at(name);
    EXPECT_TRUE(at::equal(other.view(at::kInt), t.view(at::kInt))) << name;
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int ranks : {1, 2, 3}) {
        cases.push_back({.stage = stage, .ranks = ranks, .owners = stage == 0 ? 1 : ranks, .type = type});
      }
      if (stage > 0) cases.push_back({.stage = stage, .ranks = 4, .owners = 2, .type = type});
    }
    cases.push_back({.stage = 3, .ranks = 3, .owners = 3, .type = type, .exact = 12});
    cases.push_back({.stage = 0, .ranks = 2, .type = type, .exact = 12});
    cases.push_back({.stage = 3, .ranks = 2, .owners = 2, .type = type, .momentum = true});
  }
  return cases;
}

TEST(EngineOffload, TrainsTheSameBitsAsWithout) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.Name());
    const Trained want = Train(c, Offload::kNone, 0, 3);
    for (const Offload offload : {Offload::kCpu, Offload::kNvme}) {
      SCOPED_TRACE(offload == Offload::kCpu ? "CPU" : "NVMe");
      const Trained got = Train(c, offload, 0, 3);
      ExpectSameBits(got, want);
      EXPECT_EQ(got.wire, want.wire) << "where the state is, is no matter of the wire";
    }
  }
}

TEST(EngineOffload, StateGoesFromOneKindToAnotherAndTrainsOnAlike) {
  for (const Case& c : Cases()) {
    if (c.ranks == 3 || c.exact > 0) continue;
    SCOPED_TRACE(c.Name());
    const Trained want = Train(c, Offload::kNone, 0, 4);
    for (const auto& [before, after] : {std::pair{Offload::kNone, Offload::kNvme},
                                        {Offload::kNvme, Offload::kCpu},
                                        {Offload::kNvme, Offload::kNvme}}) {
      const Trained saved = Train(c, before, 0, 2);
      Trained got = Train(c, after, 2, 4, &saved.state);
      got.losses.insert(got.losses.begin(), saved.losses.begin(), saved.losses.end());
      Trained all = want;
      std::sort(all.losses.begin(), all.losses.end()), std::sort(got.losses.begin(), got.losses.end());
      ExpectSameBits(got, all);
    }
  }
}

model::LlamaConfig DeepLlama() {
  model::LlamaConfig c;
  c.layers = 8, c.hidden = 64, c.heads = 4, c.kv_heads = 2, c.ffn = 192, c.vocab = 256, c.max_positions = 16;
  c.tied = true;
  return c;
}

int64_t Elements(const UnitSpec& unit) {
  int64_t n = 0;
  for (const ParamSpec& spec : unit.params) n += spec.numel();
  return n;
}

constexpr int64_t Blocks(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Of rank 0 after two steps, and what the device counted of all ranks.
struct Held {
  MemoryReport memory;
  device::MemoryStats host;
};
Held Measure(int stage, int ranks, at::ScalarType type, Offload offload) {
  Held held;
  std::atomic<int64_t> host = 0;
  RunRanks(ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
    Case c{.stage = stage, .ranks = ranks, .type = type};
    EngineOptions options = OptionsOf(c, offload);
    options.poison_freed = false;
    Engine engine(device, comm, model::LlamaUnits(DeepLlama()), options);
    model::Llama llama(DeepLlama(), engine);
    const at::Tensor tokens = Tokens(kBatch, kLength, 256, 3).narrow(0, rank * (kBatch / ranks), kBatch / ranks);
    for (int step = 1; step <= 2; ++step) {
      engine.BeginStep();
      engine.Backward(llama.LossSum(tokens), true);
      engine.FinishBackward();
      engine.Step(1e-2, 1e-2, step);
    }
    host += engine.memory().host();
    comm.Barrier();
    if (rank == 0) {
      held = {engine.memory(), device.HostStats()};
      EXPECT_EQ(host, held.host.current_bytes) << "what ranks report and what was handed out";
    }
    comm.Barrier();
  });
  return held;
}

// The table of docs/parallelism.md, byte by byte.
TEST(EngineOffload, HoldsOnDeviceHostAndDiskWhatItSays) {
  const auto units = model::LlamaUnits(DeepLlama());
  int64_t p = 0;
  for (const UnitSpec& unit : units) p += Elements(unit);
  const int64_t block = Elements(units.at(1)), root = p - DeepLlama().layers * block;
  for (const int stage : {0, 1, 3}) {
    for (const int ranks : {1, 2}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const int64_t owners = stage == 0 ? 1 : ranks, e = type == at::kFloat ? 4 : 2;
        const Case c{.stage = stage, .ranks = ranks, .owners = static_cast<int>(owners), .type = type};
        SCOPED_TRACE(c.Name());
        int64_t section = 0, largest_section = 0;  // whole blocks of one tensor of own rows
        for (const UnitSpec& unit : units) {
          section += Blocks(4 * Elements(unit) / owners);
          largest_section = std::max(largest_section, Blocks(4 * Elements(unit) / owners));
        }
        const MemoryReport cpu = Measure(stage, ranks, type, Offload::kCpu).memory;
        const MemoryReport nvme = Measure(stage, ranks, type, Offload::kNvme).memory;
        for (const MemoryReport& held : {cpu, nvme}) {
          EXPECT_EQ(held.params, stage == 3 ? 0 : e * p);
          EXPECT_EQ(held.master + held.optimizer + held.buffers, 0);
          EXPECT_EQ(held.gradients, 4 * p / owners);
          if (stage == 3) {
            EXPECT_EQ(held.peak_params, e * (root + block)) << "a block, and the root, which stays in use";
          }
        }
        EXPECT_EQ(cpu.host_master, 4 * p / owners);
        EXPECT_EQ(cpu.host_optimizer, 8 * p / owners);
        EXPECT_EQ(cpu.host(), cpu.host_master + cpu.host_optimizer);
        EXPECT_EQ(cpu.disk(), 0);
        const bool bf16 = type == at::kBFloat16;
        EXPECT_EQ(nvme.host_weights, stage == 3 && bf16 ? 2 * p / owners : 0);
        EXPECT_EQ(nvme.host_master, stage == 3 && !bf16 ? 4 * p / owners : 0);
        EXPECT_EQ(nvme.host_optimizer, 0);
        EXPECT_EQ(nvme.host_windows, 3 * (bf16 ? 3 : 2) * largest_section + 4096) << "three units, and one alignment";
        EXPECT_EQ(nvme.disk_master, bf16 ? section : 0);
        EXPECT_EQ(nvme.disk_optimizer, 2 * section);
      }
    }
  }
}

// Units one after another, each the matrix that the next multiplies: nothing stays between forward and backward.
std::vector<UnitSpec> Chain() {
  std::vector<UnitSpec> units;
  for (int u = 0; u < 6; ++u) {
    units.push_back({std::to_string(u), {{std::to_string(u) + ".w", {8, 8}, Init::kNormal, 0.5}}});
  }
  return units;
}
at::Tensor ChainLoss(ParameterHost& host, at::Tensor x) {
  for (int u = 0; u < 6; ++u) {
    host.PreForward(u);
    x = host.PostForward(u, at::tanh(at::mm(x, host.Param(u, 0))));
  }
  return x.square().sum();
}

// What does not fit one device trains on it, a unit at a time.
TEST(EngineOffload, OneRankHoldsAUnitAtATime) {
  std::vector<std::string> hashes;
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (const bool poison : {false, true}) {
      RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
        EngineOptions options = OptionsOf({.stage = 3}, offload);
        options.poison_freed = poison;
        Engine engine(device, comm, Chain(), options);
        for (int step = 1; step <= 3; ++step) {
          engine.BeginStep();
          for (int m = 0; m < 2; ++m) engine.Backward(ChainLoss(engine, at::ones({4, 8})), m == 1);
          engine.FinishBackward();
          engine.Step(1e-2, 1.0, step);
        }
        const MemoryReport memory = engine.memory();
        EXPECT_EQ(memory.peak_params, (offload == Offload::kNone ? 6 : 1) * 4 * 64);
        if (offload != Offload::kNone) {
          EXPECT_EQ(memory.params, 0);
          // Poisoned weights stay, so that the device has more than is in use.
          EXPECT_TRUE(poison || device.Stats().current_bytes == 0) << device.Stats().current_bytes;
        }
        hashes.push_back(engine.ParameterHash());
      });
    }
  }
  EXPECT_THAT(hashes, ::testing::Each(hashes.at(0)));
}

TEST(EngineOffload, ShardsThatAreOnDiskAreVisitedOrCopied) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, UnitsOf(), OptionsOf({.type = at::kBFloat16}, Offload::kNvme));
    EXPECT_FALSE(engine.state_in_memory());
    for (const ShardView& s : engine.Shards()) {
      EXPECT_FALSE(s.master.defined());
      EXPECT_EQ(s.state.size(), 2u);
      EXPECT_FALSE(s.state.at(0).defined());
    }
    // Some tensors only: the others keep what they had.
    engine.VisitShards(true, [](int, const std::vector<ShardView>& shards) {
      for (const ShardView& s : shards) s.state.at(0).fill_(3);
    });
    engine.OnLoaded();
    const std::string hash = engine.ParameterHash();
    int units = 0;
    engine.VisitShards(false, [&](int u, const std::vector<ShardView>& shards) {
      EXPECT_EQ(u, units++);
      for (const ShardView& s : shards) {
        EXPECT_TRUE((s.state.at(0) == 3).all().item<bool>());
        EXPECT_TRUE((s.state.at(1) == 0).all().item<bool>());
      }
    });
    EXPECT_EQ(units, engine.unit_count());
    Engine fresh(device, comm, UnitsOf(), OptionsOf({.type = at::kBFloat16}, Offload::kNone));
    EXPECT_EQ(hash, fresh.ParameterHash());
  });
}

// A visit that ends early leaves the engine as it was.
TEST(EngineOffload, AVisitorThatThrowsLosesNothing) {
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, UnitsOf(), OptionsOf({.type = at::kBFloat16}, Offload::kNvme));
    const std::string before = engine.ParameterHash();
    for (const bool writes : {false, true}) {
      EXPECT_THROW(engine.VisitShards(writes,
                                      [](int u, const std::vector<ShardView>&) {
                                        if (u == 1) throw std::runtime_error("no more");
                                      }),
                   std::runtime_error);
      EXPECT_EQ(engine.ParameterHash(), before);
    }
  });
}

// The way of a checkpoint: another thread copies shards while training goes on, and an update waits for it.
TEST(EngineOffload, ShardsCanBeCopiedUntilTheUpdateComesToThem) {
  const model::LlamaConfig config = SmallLlama(true);
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (const Case& c : {Case{.stage = 3, .ranks = 2, .owners = 2, .type = at::kBFloat16},
                          Case{.stage = 0, .ranks = 2, .owners = 1, .type = at::kBFloat16},
                          Case{.stage = 3, .ranks = 4, .owners = 2, .type = at::kFloat}}) {
      SCOPED_TRACE(c.Name() + ", offload " + std::to_string(static_cast<int>(offload)));
      const Trained want = Train(c, offload, 0, 1);
      Named seen = Blank();
      RunRanks(c.ranks, [&](int rank, device::Device& device, dist::Comm& comm) {
        dist::Mesh mesh(comm, c.owners);
        Engine engine(device, mesh, UnitsOf(), OptionsOf(c, offload));
        LoadState(engine, want.state);
        model::Llama llama(config, engine);
        EXPECT_EQ(engine.state_in_memory(), offload != Offload::kNvme);
        const std::vector<ShardView> shards = engine.Shards();
        const auto copy = [&](int unit) {
          for (const ShardView& s : shards) {
            if (s.unit != unit || s.rows.size() == 0) continue;
            for (int t = 0; t <= static_cast<int>(s.state.size()); ++t) {
              at::Tensor rows =
                  seen.at(t == 0 ? s.name : s.name + "." + std::to_string(t - 1)).narrow(0, s.rows.lo, s.rows.size());
              engine.CopyShard(unit, s.index, t, rows.mutable_data_ptr());
            }
          }
        };
        std::thread other([&] { copy(0), copy(1); });
        std::vector<int> order;
        engine.BeforeUpdate([&](int unit) {
          order.push_back(unit);
          if (unit == 0) other.join();
          if (unit > 1) copy(unit);
        });
        engine.BeginStep();
        engine.Backward(llama.LossSum(Tokens(2, kLength, config.vocab, static_cast<uint64_t>(rank))), true);
        engine.FinishBackward();
        engine.Step(1e-2, 1e-2, 2);
        EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
        engine.BeforeUpdate(nullptr);
      });
      for (const auto& [name, t] : want.state) EXPECT_TRUE(at::equal(seen.at(name), t)) << name;
    }
  }
}

// Fails one kind of call from its `after`-th on.
class FailingCalls final : public OffloadCalls {
 public:
  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    return Fails(reads_, read_error) ? -1 : OffloadCalls::Read(fd, to, bytes, at);
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    return Fails(writes_, write_error) ? -1 : OffloadCalls::Write(fd, from, bytes, at);
  }
  int read_error = 0, write_error = 0;
  int after = 0;

 private:
  bool Fails(std::atomic<int>& count, int error) const {
    if (error == 0 || count++ < after) return false;
    errno = error;
    return true;
  }
  std::atomic<int> reads_ = 0, writes_ = 0;
};

// Every place at which it can happen, until steps come through without.
TEST(EngineOffload, AFailingDiskEndsTrainingWithOneLine) {
  const model::LlamaConfig config = SmallLlama(true);
  for (const bool read : {true, false}) {
    int failures = 0;
    for (int after = 0;; ++after) {
      FailingCalls calls;
      calls.after = after;
      (read ? calls.read_error : calls.write_error) = read ? EIO : ENOSPC;
      std::string message;
      RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
        EngineOptions options = OptionsOf({.type = at::kBFloat16}, Offload::kNvme);
        options.offload_place.calls = &calls;
        try {
          Engine engine(device, comm, UnitsOf(), options);
          model::Llama llama(config, engine);
          for (int step = 1; step <= 2; ++step) {
            engine.BeginStep();
            engine.Backward(llama.LossSum(Tokens(2, kLength, config.vocab, 1)), true);
            engine.FinishBackward();
            engine.Step(1e-2, 1e-2, step);
          }
          engine.ParameterHash();  // the last writes are awaited by whoever reads next
        } catch (const OffloadError& error) {
          message = error.what();
        }
      });
      if (message.empty()) break;
      ++failures;
      EXPECT_THAT(message, ::testing::StartsWith("offload of rank 0 to " + ::testing::TempDir()));
      EXPECT_THAT(message, ::testing::HasSubstr(read ? ": cannot read " : ": cannot write "));
      EXPECT_THAT(message, ::testing::HasSubstr(" at offset "));
      EXPECT_THAT(message, ::testing::EndsWith(read ? ": Input/output error" : ": No space left on device"));
      EXPECT_EQ(message.find('\n'), std::string::npos);
    }
    EXPECT_GE(failures, read ? 12 : 12) << "four units: two updates and one hash, or a start and two updates";
  }
}

}  // namespace
}  // namespace trainyard::engine::testing
