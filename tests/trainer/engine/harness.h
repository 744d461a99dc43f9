// Ranks as threads, a plain single-process reference of the same model, and small Llamas. Thread-safety: see each.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/init.h"
#include "trainer/engine/offload.h"
#include "trainer/model/llama.h"
#include "trainer/optim/clip.h"

namespace trainyard::engine::testing {

// Runs `fn(rank, device, comm)` on one thread per rank, each with one thread of arithmetic, and rethrows the first
// exception. The comms die when a rank leaves with an exception, so that its peers do not wait for it.
inline void RunRanks(int world, const std::function<void(int, device::Device&, dist::Comm&)>& fn) {
  at::set_num_threads(1);
  auto device = device::Open("CPU");
  ASSERT_TRUE(device.has_value());
  auto comms = dist::MakeInProcessComms(world);
  std::vector<std::exception_ptr> errors(world);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        at::set_num_threads(1);
        fn(r, **device, *comms[r]);
      } catch (...) {
        errors[r] = std::current_exception();
        comms[r].reset();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

// The parameters of a model as plain leaves: what training without an engine looks like.
class PlainHost final : public ParameterHost {
 public:
  // Initial values in `type`, kFloat or kDouble, and kept in `compute`.
  PlainHost(const std::vector<UnitSpec>& units, at::ScalarType type, uint64_t seed)
      : PlainHost(units, type, seed, type) {}
  PlainHost(const std::vector<UnitSpec>& units, at::ScalarType type, uint64_t seed, at::ScalarType compute)
      : units_(units) {
    for (const UnitSpec& unit : units) {
      params_.emplace_back();
      for (const ParamSpec& spec : unit.params) {
        at::Tensor p = at::empty(spec.shape, type);
        if (type == at::kDouble) {
          InitElements(spec, seed, 0, spec.numel(), p.mutable_data_ptr<double>());
        } else {
          InitElements(spec, seed, 0, spec.numel(), p.mutable_data_ptr<float>());
        }
        params_.back().push_back(p.to(compute).set_requires_grad(!spec.frozen));
      }
    }
  }
  const at::Tensor& Param(int unit, int index) const override { return params_[unit][index]; }
  void PreForward(int) override {}
  at::Tensor PostForward(int, at::Tensor y) override { return y; }
  void BeginRecompute() override {}
  void EndRecompute() override {}

  void ZeroGrad() {
    for (auto& unit : params_) {
      for (at::Tensor& p : unit) p.mutable_grad() = at::Tensor();
    }
  }
  // Makes every parameter a new leaf in `type`.
  void To(at::ScalarType type) {
    for (auto& unit : params_) {
      for (at::Tensor& p : unit) p = p.detach().to(type).set_requires_grad(p.requires_grad());
    }
  }
  // Takes over the values of a host of the same units.
  void CopyFrom(const PlainHost& other) {
    at::NoGradGuard no_grad;
    for (size_t u = 0; u < params_.size(); ++u) {
      for (size_t i = 0; i < params_[u].size(); ++i) params_[u][i].copy_(other.params_[u][i]);
    }
  }
  // fn(spec, parameter)
  void ForEach(const std::function<void(const ParamSpec&, at::Tensor&)>& fn) {
    for (size_t u = 0; u < units_.size(); ++u) {
      for (size_t i = 0; i < params_[u].size(); ++i) fn(units_[u].params[i], params_[u][i]);
    }
  }

 private:
  std::vector<UnitSpec> units_;
  std::vector<std::vector<at::Tensor>> params_;
};

using Named = std::map<std::string, at::Tensor>;

inline Named Gradients(PlainHost& host) {
  Named grads;
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    grads[spec.name] = p.grad().defined() ? p.grad().clone() : at::zeros(spec.shape, p.options());
  });
  return grads;
}

// Puts this rank's rows into full tensors that the ranks share; rows of different ranks do not overlap.
inline Named Like(const std::vector<UnitSpec>& units, at::ScalarType type) {
  Named full;
  for (const UnitSpec& unit : units) {
    for (const ParamSpec& spec : unit.params) full[spec.name] = at::full(spec.shape, std::nan(""), type);
  }
  return full;
}
inline void CollectGradients(Engine& engine, Named& full) {
  engine.VisitShards(false, [&](int u, const std::vector<ShardView>& shards) {
    for (size_t i = 0; i < shards.size(); ++i) {
      const RowRange rows = shards[i].rows;
      const at::Tensor grad = engine.GradRows(u, static_cast<int>(i));
      if (grad.defined()) full.at(shards[i].name).narrow(0, rows.lo, rows.size()).copy_(grad);
    }
  });
}
inline void CollectMasters(Engine& engine, Named& full) {
  engine.VisitShards(false, [&](int, const std::vector<ShardView>& shards) {
    for (const ShardView& s : shards) full.at(s.name).narrow(0, s.rows.lo, s.rows.size()).copy_(s.master);
  });
}
// Masters as `name`, optimizer state as `name` + ".0" and so on; `full` is of Like with names as needed.
inline void CollectState(Engine& engine, Named& full) {
  engine.VisitShards(false, [&](int, const std::vector<ShardView>& shards) {
    for (const ShardView& s : shards) {
      full.at(s.name).narrow(0, s.rows.lo, s.rows.size()).copy_(s.master);
      for (size_t i = 0; i < s.state.size(); ++i) {
        full.at(s.name + "." + std::to_string(i)).narrow(0, s.rows.lo, s.rows.size()).copy_(s.state[i]);
      }
    }
  });
}
// The way back, of CollectState's names; collective.
inline void LoadState(Engine& engine, const Named& full) {
  engine.VisitShards(true, [&](int, const std::vector<ShardView>& shards) {
    for (const ShardView& s : shards) {
      s.master.copy_(full.at(s.name).narrow(0, s.rows.lo, s.rows.size()));
      for (size_t i = 0; i < s.state.size(); ++i) {
        s.state[i].copy_(full.at(s.name + "." + std::to_string(i)).narrow(0, s.rows.lo, s.rows.size()));
      }
    }
  });
  engine.OnLoaded();
}

// Where tests have the files of NVMe offload.
inline OffloadPlace ScratchPlace() { return {.directory = ::testing::TempDir()}; }

inline double RelativeError(const at::Tensor& a, const at::Tensor& ref) {
  const at::Tensor r = ref.to(at::kDouble);
  return ((a.to(at::kDouble) - r).norm() / r.norm()).item<double>();
}

// Two key rows only (one kv head of two), fewer than three or four ranks; odd sizes elsewhere.
inline model::LlamaConfig SmallLlama(bool tied) {
  model::LlamaConfig c;
  c.layers = 3, c.hidden = 12, c.heads = 6, c.kv_heads = 1, c.ffn = 10, c.vocab = 19, c.max_positions = 16;
  c.tied = tied;
  return c;
}

// `count` sequences of s+1 tokens, the same for the same seed.
inline at::Tensor Tokens(int64_t count, int64_t s, int64_t vocab, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randint(0, vocab, {count, s + 1}, generator, at::dtype(at::kLong));
}

}  // namespace trainyard::engine::testing
