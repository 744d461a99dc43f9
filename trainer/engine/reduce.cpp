#include "trainer/engine/reduce.h"

#include <algorithm>

#include "trainer/device/device.h"

namespace trainyard::engine {
namespace {

int64_t Bytes(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

}  // namespace

Reducer::Reducer(const Layout& layout, std::vector<std::unique_ptr<Unit>>& units, int max_inflight, GradientSums* exact)
    : layout_(layout), units_(units), max_inflight_(static_cast<size_t>(std::max(1, max_inflight))), exact_(exact) {
  int first = 0;
  for (const auto& unit : units_) {
    UnitState state;
    const size_t count = unit->params().size();
    state.filled.assign(count, false);
    state.kept.resize(count);
    state.label = "reduce " + unit->spec().name;
    state.first = first;
    first += static_cast<int>(count);
    if (!Keeps() && layout_.owners == 1) AllocateLocal(*unit, state);
    // At stage 1 it comes when the sums of all ranks go: one of the two is enough memory.
    if (layout_.owners > 1 && layout_.stage >= 2) AllocateShard(*unit, state);
    states_.push_back(std::move(state));
  }
}

void Reducer::AllocateShard(Unit& unit, UnitState& state) {
  state.shard = layout_.device->Empty({unit.segment()}, SumType());
  state.shard.zero_();
  layout_.memory->Book(&MemoryReport::gradients, Bytes(state.shard));
}

void Reducer::AllocateLocal(Unit& unit, UnitState& state) {
  state.local = layout_.device->Empty({layout_.owners * unit.segment()}, SumType());
  // Stages 2 and 3 hold it for one reduction only.
  layout_.memory->Book(layout_.stage >= 2 && layout_.owners > 1 ? &MemoryReport::buffers : &MemoryReport::gradients,
                       Bytes(state.local));
  std::fill(state.filled.begin(), state.filled.end(), false);
  for (const Parameter& p : unit.params()) {  // the padding travels too and must not hold garbage
    const int64_t size = p.spec.row_size();
    for (int o = 0; o < layout_.owners; ++o) {
      const int64_t rows = unit.OwnedBy(p, o).size();
      if (rows == p.rows_per_owner) continue;
      state.local.narrow(0, o * unit.segment() + p.offset + rows * size, (p.rows_per_owner - rows) * size).zero_();
    }
  }
}

void Reducer::BeginStep() {
  TORCH_CHECK(inflight_.empty(), "BeginStep before FinishBackward of the previous step");
  if (exact_) exact_->BeginStep();
  for (UnitState& state : states_) {
    state.reduced = false;
    if (layout_.stage == 1 && state.shard.defined()) {
      layout_.memory->Book(&MemoryReport::gradients, -Bytes(state.shard));
      state.shard.reset();
    }
    std::fill(state.filled.begin(), state.filled.end(), false);
    for (at::Tensor& grad : state.kept) {
      if (!grad.defined()) continue;
      layout_.memory->Book(&MemoryReport::gradients, -Bytes(grad));
      grad.reset();
    }
  }
}

void Reducer::BeginMicroBatch(bool last, bool padding) {
  last_ = last;
  padding_ = padding;
  for (UnitState& state : states_) state.pending = static_cast<int>(state.filled.size());
}

bool Reducer::Take(int u, int index) {
  Unit& unit = *units_[u];
  UnitState& state = states_[u];
  at::Tensor grad = std::move(unit.params()[index].full.mutable_grad());
  unit.params()[index].full.mutable_grad() = at::Tensor();
  if (padding_) return --state.pending == 0;
  if (Keeps()) {
    Keep(state, index, std::move(grad));
  } else {
    Pack(unit, state, index, grad);
  }
  return --state.pending == 0;
}

void Reducer::Keep(UnitState& state, int index, at::Tensor grad) {
  at::Tensor& kept = state.kept[index];
  if (kept.defined()) {
    kept.add_(grad);
    return;
  }
  kept = grad.to(layout_.master).contiguous();  // no copy when it is so already
  layout_.device->TakeFromOperations(kept);
  layout_.memory->Book(&MemoryReport::gradients, Bytes(kept));
}

void Reducer::Pack(Unit& unit, UnitState& state, int index, const at::Tensor& grad) {
  if (!state.local.defined()) AllocateLocal(unit, state);
  const Parameter& p = unit.params()[index];
  for (int o = 0; o < layout_.owners; ++o) {
    const RowRange rows = unit.OwnedBy(p, o);
    if (rows.size() == 0) continue;
    at::Tensor piece = unit.Piece(state.local, p, o);
    const at::Tensor part = Unit::Rows(grad, rows);
    if (exact_) {
      exact_->Add(state.first + index, part, state.filled[index], piece);
    } else if (state.filled[index]) {
      piece.add_(part);
    } else {
      piece.copy_(part);
    }
  }
  state.filled[index] = true;
}

void Reducer::Complete(int u) {
  states_[u].pending = 0;
  if (!Keeps() && ((layout_.stage >= 2 && layout_.owners > 1) || last_)) Launch(u);
}

void Reducer::Launch(int u) {
  Unit& unit = *units_[u];
  UnitState& state = states_[u];
  if (!state.local.defined()) AllocateLocal(unit, state);
  for (size_t i = 0; i < state.filled.size(); ++i) {
    if (state.filled[i]) continue;
    for (int o = 0; o < layout_.owners; ++o) {
      if (unit.OwnedBy(unit.params()[i], o).size() > 0) unit.Piece(state.local, unit.params()[i], o).zero_();
    }
  }
  InFlight entry{u, nullptr, {}, {}};
  const dist::CallOptions options{.label = state.label};
  if (layout_.owners == 1) {
    entry.work = layout_.comm->AllReduce(state.local, SumKind(), options);
  } else {
    entry.in = std::move(state.local);
    state.local.reset();
    if (!state.shard.defined()) AllocateShard(unit, state);
    at::Tensor out = state.shard;
    if (state.reduced) {
      entry.out = out = layout_.device->Empty({unit.segment()}, SumType());
      layout_.memory->Book(&MemoryReport::buffers, Bytes(out));
    }
    state.reduced = true;
    entry.work = layout_.comm->ReduceScatter(out, entry.in, SumKind(), options);
  }
  inflight_.push_back(std::move(entry));
  while (inflight_.size() > max_inflight_) FinishOldest();
}

void Reducer::FinishOldest() {
  InFlight entry = std::move(inflight_.front());
  inflight_.pop_front();
  entry.work->Wait();
  if (entry.in.defined()) {
    layout_.memory->Book(layout_.stage >= 2 ? &MemoryReport::buffers : &MemoryReport::gradients, -Bytes(entry.in));
  }
  if (entry.out.defined()) {
    states_[entry.unit].shard.add_(entry.out);
    layout_.memory->Book(&MemoryReport::buffers, -Bytes(entry.out));
  }
}

void Reducer::Finish() {
  while (!inflight_.empty()) FinishOldest();
  if (!Keeps()) return;
  for (size_t u = 0; u < states_.size(); ++u) {
    for (size_t i = 0; i < states_[u].kept.size(); ++i) {
      at::Tensor& kept = states_[u].kept[i];
      if (kept.defined()) continue;
      kept = layout_.device->Empty(units_[u]->params()[i].spec.shape, layout_.master);
      kept.zero_();
      layout_.memory->Book(&MemoryReport::gradients, Bytes(kept));
    }
  }
}

bool Reducer::Settle() {
  if (!exact_->Settle(*layout_.comm, layout_.device->torch())) return false;
  for (size_t u = 0; u < states_.size(); ++u) ReadExact(static_cast<int>(u));
  return true;
}

// Unit by unit, so that integers and floats of one only are there together.
void Reducer::ReadExact(int u) {
  UnitState& state = states_[u];
  const auto& params = units_[u]->params();
  at::Tensor& sums = layout_.owners == 1 ? state.local : state.shard;
  for (size_t i = 0; i < params.size(); ++i) {
    const Parameter& p = params[i];
    const at::Tensor own = sums.narrow(0, p.offset, p.own.size() * p.spec.row_size()).view(p.master.sizes());
    state.kept[i] = exact_->Read(state.first + static_cast<int>(i), own);
    layout_.device->TakeFromOperations(state.kept[i]);
    layout_.memory->Book(&MemoryReport::gradients, Bytes(state.kept[i]));
  }
  layout_.memory->Book(&MemoryReport::gradients, -Bytes(sums));
  sums.reset();
}

at::Tensor Reducer::Owned(int u, int index) const {
  const UnitState& state = states_[u];
  const Unit& unit = *units_[u];
  const Parameter& p = unit.params()[index];
  if (layout_.world == 1 || exact_) return state.kept[index];
  if (layout_.owners == 1) return unit.Piece(state.local, p, 0);
  return state.shard.narrow(0, p.offset, p.own.size() * p.spec.row_size()).view(p.master.sizes());
}

}  // namespace trainyard::engine
