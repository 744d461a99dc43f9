// What overlaps what at stage 3, seen from outside: a Comm that writes down every call and every wait, and a model that
// writes down when a unit computes. The next unit is gathered and the one before reduced while a unit computes, and no
// more than two units and two reduce inputs are in memory at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/engine/harness.h"

namespace trainyard::engine::testing {
namespace {

constexpr int kUnits = 6;
constexpr int64_t kWidth = 8;

// Events in order, and tensors that are to be counted while they live.
class Trace {
 public:
  void Add(const std::string& event) {
    events_.push_back(event);
    Count(gathered_, most_gathered);
    Count(inputs_, most_inputs);
  }
  void WatchGathered(const at::Tensor& t) { Watch(gathered_, t); }
  void WatchInput(const at::Tensor& t) { Watch(inputs_, t); }

  // Place of the first such event from `from` on.
  size_t At(const std::string& event, size_t from = 0) const {
    const auto found = std::find(events_.begin() + static_cast<int64_t>(from), events_.end(), event);
    EXPECT_NE(found, events_.end()) << event << " after " << from << " in:\n" << Text();
    return static_cast<size_t>(found - events_.begin());
  }
  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < events_.size(); ++i) text += std::to_string(i) + " " + events_[i] + "\n";
    return text;
  }
  void Clear() { events_.clear(); }

  size_t most_gathered = 0, most_inputs = 0;

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  static void Watch(std::vector<Weak>& list, const at::Tensor& t) {
    list.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(t.storage().unsafeGetStorageImpl()));
  }
  static void Count(std::vector<Weak>& list, size_t& most) {
    std::erase_if(list, [](const Weak& weak) { return weak.expired(); });
    most = std::max(most, list.size());
  }

  std::vector<std::string> events_;
  std::vector<Weak> gathered_, inputs_;
};

class TracedWork final : public dist::Work {
 public:
  TracedWork(dist::WorkPtr work, std::string what, Trace& trace)
      : work_(std::move(work)), what_(std::move(what)), trace_(trace) {}
  void Wait() override {
    trace_.Add("wait " + what_);
    work_->Wait();
  }

 private:
  const dist::WorkPtr work_;
  const std::string what_;
  Trace& trace_;
};

// The calls of another Comm, written down.
class TracedComm final : public dist::Comm {
 public:
  TracedComm(dist::Comm& inner, Trace& trace)
      : Comm(inner.rank(), inner.size(), "traced"), inner_(inner), trace_(trace) {}

 protected:
  dist::WorkPtr DoAllGather(at::Tensor out, at::Tensor in, dist::CallContext options) override {
    trace_.WatchGathered(out);
    trace_.Add(options.label);
    return Traced(options.label, inner_.AllGather(out, in, options));
  }
  dist::WorkPtr DoReduceScatter(at::Tensor out, at::Tensor in, dist::Reduce reduce,
                                dist::CallContext options) override {
    trace_.WatchInput(in);
    trace_.Add(options.label);
    return Traced(options.label, inner_.ReduceScatter(out, in, reduce, options));
  }
  dist::WorkPtr DoAllReduce(at::Tensor t, dist::Reduce reduce, dist::CallContext options) override {
    return Traced(options.label, inner_.AllReduce(t, reduce, options));
  }
  dist::WorkPtr DoAllToAll(at::Tensor out, at::Tensor in, dist::CallContext options) override {
    return Traced(options.label, inner_.AllToAll(out, in, options));
  }
  dist::WorkPtr DoBroadcast(at::Tensor t, int root, dist::CallContext options) override {
    return Traced(options.label, inner_.Broadcast(t, root, options));
  }
  dist::WorkPtr DoSend(at::Tensor t, int to, int tag, dist::CallContext options) override {
    return Traced(options.label, inner_.Send(t, to, tag, options));
  }
  dist::WorkPtr DoRecv(at::Tensor t, int from, int tag, dist::CallContext options) override {
    return Traced(options.label, inner_.Recv(t, from, tag, options));
  }
  dist::WorkPtr DoBarrier(dist::CallContext options) override {
    inner_.Barrier(options);
    return Traced(options.label, dist::MakeSelfComm()->AllReduce(at::zeros({1}), dist::Reduce::kSum));
  }
  std::unique_ptr<Comm> DoSplit(const std::vector<int>&, int color, int, dist::CallContext options) override {
    return inner_.Split(color, rank(), options);
  }
  void DoAbort(const std::string& reason) override { inner_.Abort(reason); }

 private:
  dist::WorkPtr Traced(const std::string& label, dist::WorkPtr work) {
    return std::make_unique<TracedWork>(std::move(work), label, trace_);
  }

  dist::Comm& inner_;
  Trace& trace_;
};

std::vector<UnitSpec> Units() {
  std::vector<UnitSpec> units;
  for (int u = 0; u < kUnits; ++u) {
    units.push_back({std::to_string(u), {{std::to_string(u) + ".w", {kWidth, kWidth}, Init::kNormal, 0.5}}});
  }
  return units;
}

void OnGradient(const at::Tensor& t, Trace& trace, std::string event) {
  t.register_hook([&trace, event = std::move(event)](const at::Tensor& grad) {
    trace.Add(event);
    return grad;
  });
}

// "forward u" and "left u" around a unit's computing, "backward u" and "done u" around that of its gradients.
at::Tensor Loss(Engine& engine, Trace& trace, at::Tensor x) {
  for (int u = 0; u < kUnits; ++u) {
    const std::string name = std::to_string(u);
    engine.PreForward(u);
    trace.Add("forward " + name);
    at::Tensor y = at::mm(x, engine.Param(u, 0));
    OnGradient(y, trace, "backward " + name);
    y = at::tanh(y);
    trace.Add("left " + name);
    // Before the engine looks at it: what comes after this unit is done.
    OnGradient(y, trace, "done " + std::to_string(u + 1));
    x = engine.PostForward(u, y);
  }
  return x.square().sum();
}

void Step(Engine& engine, Trace& trace, int rounds) {
  engine.BeginStep();
  const at::Tensor x = at::ones({4, kWidth}, at::kDouble).requires_grad_(true);
  for (int round = 0; round < rounds; ++round) engine.Backward(Loss(engine, trace, x), round + 1 == rounds);
  engine.FinishBackward();
}

void ForEachRank(int max_inflight, const std::function<void(Engine&, Trace&)>& body) {
  RunRanks(2, [&](int, device::Device& device, dist::Comm& inner) {
    Trace trace;
    TracedComm comm(inner, trace);
    Engine engine(device, comm, Units(),
                  {.stage = 3,
                   .compute_dtype = at::kDouble,
                   .max_inflight_reduces = max_inflight,
                   .poison_freed = true,
                   .seed = 1});
    body(engine, trace);
  });
}

TEST(EngineTrace, TheNextUnitIsGatheredWhileOneComputes) {
  ForEachRank(2, [](Engine& engine, Trace& trace) {
    Step(engine, trace, 1);
    trace.Clear();
    Step(engine, trace, 1);  // the order is known now
    for (int u = 0; u + 1 < kUnits; ++u) {
      const std::string name = std::to_string(u), next = std::to_string(u + 1);
      const size_t gather = trace.At("gather " + next);
      EXPECT_LT(gather, trace.At("forward " + name)) << "issued before the unit computes, so all of it is hidden";
      EXPECT_GT(trace.At("wait gather " + next), trace.At("left " + name)) << "and awaited when it is needed";
    }
    // The last unit stays for backward; from there on they come in reverse.
    const size_t turn = trace.At("left " + std::to_string(kUnits - 1));
    for (int u = kUnits - 1; u > 0; --u) {
      const std::string name = std::to_string(u), next = std::to_string(u - 1);
      const size_t gather = trace.At("gather " + next, turn);
      EXPECT_LT(gather, trace.At("backward " + name, turn));
      EXPECT_GT(trace.At("wait gather " + next, turn), trace.At("done " + name, turn));
      EXPECT_LT(gather, trace.At("reduce " + name, turn)) << "a queue of calls would else not overlap it";
    }
  });
}

TEST(EngineTrace, AUnitIsReducedWhileTheNextOneComputes) {
  ForEachRank(2, [](Engine& engine, Trace& trace) {
    Step(engine, trace, 1);
    trace.Clear();
    Step(engine, trace, 1);
    for (int u = kUnits - 1; u > 0; --u) {
      const std::string name = std::to_string(u), next = std::to_string(u - 1);
      EXPECT_LT(trace.At("reduce " + name), trace.At("backward " + next));
      EXPECT_GT(trace.At("wait reduce " + name), trace.At("backward " + next));
    }
  });
}

TEST(EngineTrace, NoMoreThanTwoUnitsAndTwoReduceInputsAreInMemory) {
  for (const int max_inflight : {1, 2}) {
    ForEachRank(max_inflight, [max_inflight](Engine& engine, Trace& trace) {
      for (int step = 0; step < 3; ++step) Step(engine, trace, 3);
      constexpr int64_t kUnit = 8 * kWidth * kWidth;
      EXPECT_LE(trace.most_gathered, 1u) << "buffers of gathers";
      EXPECT_EQ(trace.most_inputs, static_cast<size_t>(max_inflight));
      const MemoryReport memory = engine.memory();
      EXPECT_LE(memory.peak_params, 2 * kUnit);
      // One buffer of a gather, the inputs of reductions, and as much again of one rank's rows of both.
      EXPECT_LE(memory.peak_buffers, kUnit * (1 + max_inflight) + kUnit / 2 * max_inflight);
    });
  }
}

// A poisoned weight would make every result that reads it NaN.
TEST(EngineTrace, NothingReadsWhatIsFreed_Bug56) {
  std::vector<std::string> hashes;
  for (const bool poison : {true, false}) {
    RunRanks(3, [&](int rank, device::Device& device, dist::Comm& comm) {
      Engine engine(device, comm, Units(),
                    {.stage = 3, .compute_dtype = at::kDouble, .poison_freed = poison, .seed = 1});
      Trace trace;
      for (int step = 1; step <= 3; ++step) {
        Step(engine, trace, 2);
        EXPECT_TRUE(std::isfinite(engine.GradNorm(1.0)));
        engine.Step(1e-2, 1.0, step);
      }
      const std::string hash = engine.ParameterHash();
      if (rank == 0) hashes.push_back(hash);
    });
  }
  EXPECT_EQ(hashes.at(0), hashes.at(1));
}

}  // namespace
}  // namespace trainyard::engine::testing
