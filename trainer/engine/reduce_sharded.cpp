// Several owners: a reduce-scatter per unit over the owners, then, with replicas, an all-reduce of the own rows.
#include <algorithm>
#include <deque>
#include <string>

#include "trainer/dist/comm.h"
#include "trainer/engine/reduce.h"

namespace trainyard::engine {
namespace {

class ShardedReducer final : public Reducer {
 public:
  ShardedReducer(const Layout& layout, Units& units, const ReduceOptions& options)
      : Reducer(layout, units, options.exact),
        each_(layout.stage >= 2 && options.each_micro_batch),
        max_inflight_(static_cast<size_t>(std::max(1, options.max_inflight))) {
    for (const auto& unit : units) {
      UnitState state;
      state.filled.assign(unit->params().size(), false);
      state.label = unit->spec().name;
      states_.push_back(std::move(state));
    }
  }

  void Finish() override;

 protected:
  void Clear() override;
  at::Tensor Sum(int unit, int index) const override;
  void Drain(const std::function<void(int, int)>& read) override;
  void Add(int unit, int index, at::Tensor grad) override;
  void Completed(int unit) override {
    if (each_ || last_) Launch(unit);
  }

 private:
  struct UnitState {
    at::Tensor local;          // [owners * n]: sums or packed gradients of this rank
    at::Tensor shard;          // [n]: reduced sum of the own rows
    bool reduced = false;      // `shard` holds something of this step
    std::vector<bool> filled;  // parameters that `local` has something of
    std::string label;
  };
  struct InFlight {
    int unit = 0;
    bool last = false;  // the sum over the owners is complete with it
    dist::WorkPtr work;
    at::Tensor in;   // freed when done
    at::Tensor out;  // to be added to the shard; undefined when it went there directly
  };

  // A buffer that lives for one reduction only is not counted among the gradients.
  int64_t MemoryReport::* LocalTerm() const { return each_ ? &MemoryReport::buffers : &MemoryReport::gradients; }
  void AllocateLocal(Unit& unit, UnitState& state);
  void Launch(int unit);
  void FinishOldest();

  const bool each_;
  const size_t max_inflight_;
  std::vector<UnitState> states_;
  std::deque<InFlight> inflight_;
  std::vector<dist::WorkPtr> replicated_;  // sums over the replicas under way, in place
};

// The input that is being packed counts as well as those under way.
void ShardedReducer::AllocateLocal(Unit& unit, UnitState& state) {
  while (each_ && inflight_.size() + 1 > max_inflight_ && !inflight_.empty()) FinishOldest();
  state.local = NewSums(layout_.owners * unit.trained(), LocalTerm());
  std::fill(state.filled.begin(), state.filled.end(), false);
  for (const Parameter& p : unit.params()) {  // the padding travels too and must not hold garbage
    if (p.spec.frozen) continue;
    const int64_t size = p.spec.row_size();
    for (int o = 0; o < layout_.owners; ++o) {
      const int64_t rows = unit.OwnedBy(p, o).size();
      if (rows == p.rows_per_owner) continue;
      state.local.narrow(0, o * unit.trained() + p.offset + rows * size, (p.rows_per_owner - rows) * size).zero_();
    }
  }
}

void ShardedReducer::Clear() {
  TORCH_CHECK(inflight_.empty(), "BeginStep before FinishBackward of the previous step");
  for (UnitState& state : states_) {
    state.reduced = false;
    Release(state.shard);  // comes back with the first reduction: until then forward has its memory
    std::fill(state.filled.begin(), state.filled.end(), false);
  }
}

void ShardedReducer::Add(int u, int index, at::Tensor grad) {
  Unit& unit = *units_[u];
  UnitState& state = states_[u];
  if (!state.local.defined()) AllocateLocal(unit, state);
  const Parameter& p = unit.params()[index];
  for (int o = 0; o < layout_.owners; ++o) {
    const RowRange rows = unit.OwnedBy(p, o);
    if (rows.size() == 0) continue;
    Put(u, index, Unit::Rows(grad, rows), state.filled[index], unit.Piece(state.local, p, o));
  }
  state.filled[index] = true;
}

void ShardedReducer::Launch(int u) {
  Unit& unit = *units_[u];
  UnitState& state = states_[u];
  if (!state.local.defined()) AllocateLocal(unit, state);
  for (size_t i = 0; i < state.filled.size(); ++i) {
    const Parameter& p = unit.params()[i];
    if (state.filled[i] || p.spec.frozen) continue;
    for (int o = 0; o < layout_.owners; ++o) {
      if (unit.OwnedBy(p, o).size() > 0) unit.Piece(state.local, p, o).zero_();
    }
  }
  InFlight entry{.unit = u, .last = last_};
  entry.in = std::move(state.local);
  state.local.reset();
  if (!state.shard.defined()) state.shard = NewSums(unit.trained());
  at::Tensor out = state.shard;
  if (state.reduced) entry.out = out = NewSums(unit.trained(), &MemoryReport::buffers);
  state.reduced = true;
  entry.work = layout_.shard->ReduceScatter(out, entry.in, SumKind(), {.label = "reduce " + state.label});
  inflight_.push_back(std::move(entry));
  while (inflight_.size() > max_inflight_) FinishOldest();
}

void ShardedReducer::FinishOldest() {
  InFlight entry = std::move(inflight_.front());
  inflight_.pop_front();
  UnitState& state = states_[entry.unit];
  entry.work->Wait();
  Release(entry.in, LocalTerm());
  if (entry.out.defined()) state.shard.add_(entry.out);
  Release(entry.out, &MemoryReport::buffers);
  if (!entry.last || layout_.replicas == 1) return;
  replicated_.push_back(layout_.replicate->AllReduce(state.shard, SumKind(), {.label = "replicate " + state.label}));
}

void ShardedReducer::Finish() {
  while (!inflight_.empty()) FinishOldest();
  for (size_t u = 0; u < states_.size(); ++u) {  // of a step without any backward pass
    if (!states_[u].shard.defined()) states_[u].shard = NewSums(units_[u]->trained()).zero_();
  }
  for (const dist::WorkPtr& work : replicated_) work->Wait();
  replicated_.clear();
}

at::Tensor ShardedReducer::Sum(int u, int index) const {
  const Parameter& p = units_[u]->params()[index];
  return states_[u].shard.narrow(0, p.offset, p.own.size() * p.spec.row_size()).view(p.weights.sizes());
}

void ShardedReducer::Drain(const std::function<void(int, int)>& read) {
  for (size_t u = 0; u < states_.size(); ++u) {
    const auto& params = units_[u]->params();
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i].spec.frozen) read(static_cast<int>(u), static_cast<int>(i));
    }
    Release(states_[u].shard);
  }
}

}  // namespace

std::unique_ptr<Reducer> MakeShardedReducer(const Layout& layout, Units& units, const ReduceOptions& options) {
  return std::make_unique<ShardedReducer>(layout, units, options);
}

}  // namespace trainyard::engine
