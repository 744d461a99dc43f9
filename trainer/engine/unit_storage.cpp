// What a unit is made of: places in segments, memory, initial values, and what the offload file lends it.
#include <algorithm>
#include <stdexcept>

#include <ATen/Parallel.h>

#include "trainer/device/device.h"
#include "trainer/engine/init.h"
#include "trainer/engine/unit.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::engine {
namespace {

constexpr int64_t kInitBlock = 1 << 22;  // numbers that are made before they are quantised

int64_t Bytes(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

template <typename T>
void InitRows(const ParamSpec& spec, uint64_t seed, const RowRange& rows, const at::Tensor& out) {
  T* data = out.mutable_data_ptr<T>();
  const int64_t base = rows.lo * spec.row_size();
  at::parallel_for(0, rows.size() * spec.row_size(), 1 << 14,
                   [&](int64_t lo, int64_t hi) { InitElements(spec, seed, base + lo, base + hi, data + lo); });
}

}  // namespace

Unit::Unit(const Layout& layout, UnitSpec spec)
    : layout_(layout), spec_(std::move(spec)), gather_label_("gather " + spec_.name) {
  PlaceSegments();
  at::NoGradGuard no_grad;
  PlaceStates();
  AllocateFlat();
  for (Parameter& p : params_) Allocate(p);
  if (layout_.offload != Offload::kNvme) AllocateStates();
  if (!layout_.frees) layout_.memory->Book(&MemoryReport::params, full_bytes_);
  if (FullOfFlat()) state_ = State::kFull;
}

void Unit::PlaceSegments() {
  for (const ParamSpec& spec : spec_.params) {
    Parameter p;
    p.spec = spec;
    if (spec.nf4 && !spec.frozen) throw std::invalid_argument("engine: " + spec.name + " is in NF4 and not frozen");
    p.rows_per_owner = (spec.rows() + layout_.owners - 1) / layout_.owners;
    p.own = layout_.OwnRows(spec.rows());
    params_.push_back(std::move(p));
  }
  for (const bool frozen : {false, true}) {
    for (Parameter& p : params_) {
      if (p.spec.frozen != frozen || p.spec.nf4) continue;
      p.offset = segment_;
      segment_ += p.rows_per_owner * p.spec.row_size();
      trained_count_ += frozen ? 0 : 1;
    }
    if (!frozen) trained_ = segment_;
  }
  for (Parameter& p : params_) {
    if (!p.spec.nf4) continue;
    p.offset = packed_;
    packed_ += p.rows_per_owner * p.spec.kept_row_size();
  }
}

// Numbers come before what is packed in bytes, so that all are aligned.
void Unit::PlaceStates() {
  for (const bool packed : {false, true}) {
    for (Parameter& p : params_) {
      if (p.spec.frozen) continue;
      const std::vector<optim::State> states = optim::States(layout_.optimizer, p.spec.shape, layout_.master);
      p.places.resize(states.size());
      state_sections_.resize(std::max(state_sections_.size(), states.size()));
      for (size_t s = 0; s < states.size(); ++s) {
        const optim::State& state = states[s];
        if ((state.type == at::kByte) != packed) continue;
        const int64_t row_bytes = c10::multiply_integers(c10::IntArrayRef(state.shape).slice(1)) *
                                  static_cast<int64_t>(c10::elementSize(state.type));
        p.places[s] = {state, state_sections_[s], row_bytes};
        state_sections_[s] += row_bytes * (state.by_rows ? p.rows_per_owner : state.shape[0]);
      }
    }
  }
}

void Unit::AllocateStates() {
  for (size_t s = 0; s < state_sections_.size(); ++s) {
    const at::Tensor section = NewZeros(layout_.offloads(), {state_sections_[s]}, at::kByte,
                                        layout_.offloads() ? &MemoryReport::host_optimizer : &MemoryReport::optimizer);
    for (Parameter& p : params_) {
      if (s < p.places.size()) p.state.push_back(StateIn(section, p, p.places[s]));
    }
  }
}

at::Tensor Unit::StateIn(const at::Tensor& section, const Parameter& p, const StatePlace& place) const {
  std::vector<int64_t> shape = place.state.shape;
  if (place.state.by_rows) shape[0] = p.own.size();
  return section.narrow(0, place.offset, shape[0] * place.row_bytes).view(place.state.type).view(shape);
}

// With one owner whose weights are the masters, full tensors are views of the flat buffer. Else, where full tensors
// stay, own rows are rows of them: of frozen parameters, which need no other type, and of all that an update writes
// there. Of parameters in NF4, which are of a type of their own, own rows are always such where full tensors stay.
bool Unit::RowsOfFull(const Parameter& p) const {
  if (p.spec.nf4) return !layout_.frees;
  return !FullOfFlat() && !layout_.frees && (p.spec.frozen || layout_.current());
}

at::ScalarType Unit::FlatType() const { return layout_.stored_master ? layout_.compute : layout_.master; }

// Trained and frozen weights share one flat buffer where both are of one type and in one memory.
bool Unit::Together() const {
  return layout_.compute == FlatType() && (!layout_.offloads() || layout_.frees || layout_.aliased);
}

const at::Tensor& Unit::FlatOf(const Parameter& p) const {
  if (p.spec.nf4) return packed_flat_;
  return p.spec.frozen && !Together() ? frozen_flat_ : flat_;
}

at::Tensor Unit::OwnRows(const at::Tensor& flat, int64_t offset, const Parameter& p) const {
  const int64_t rows = p.own.size();
  return flat.narrow(0, offset, rows * p.spec.kept_row_size()).view(p.spec.KeptShape(rows));
}

at::Tensor Unit::NewZeros(bool host, at::IntArrayRef shape, at::ScalarType type, int64_t MemoryReport::* term) const {
  at::Tensor t = host ? layout_.device->PinnedEmpty(shape, type) : layout_.device->Empty(shape, type);
  layout_.memory->Book(term, Bytes(t));
  return t.zero_();
}

void Unit::AllocateFlat() {
  if (layout_.current() && !FullOfFlat()) return;  // all are rows of full tensors
  const bool host = layout_.offloads() && !layout_.aliased;
  flat_ = NewZeros(host, {Together() ? segment_ : trained_}, FlatType(),
                   layout_.aliased         ? &MemoryReport::params
                   : layout_.stored_master ? &MemoryReport::host_weights
                   : host                  ? &MemoryReport::host_master
                                           : &MemoryReport::master);
  if (!layout_.frees) return;
  const auto frozen = host ? &MemoryReport::host_weights : &MemoryReport::master;
  if (packed_ > 0) packed_flat_ = NewZeros(host, {packed_}, at::kByte, frozen);
  if (Together() || segment_ == trained_) return;
  frozen_flat_ = NewZeros(host, {segment_ - trained_}, layout_.compute, frozen);
}

void Unit::Allocate(Parameter& p) {
  const auto own_of_flat = [&] {
    const at::Tensor& flat = FlatOf(p);
    return OwnRows(flat, p.offset - (flat.is_same(frozen_flat_) ? trained_ : 0), p);
  };
  if (FullOfFlat() && !p.spec.nf4) {
    p.weights = own_of_flat();
    p.full = p.weights.variable_data();
  } else {
    p.full = layout_.device->Empty(p.spec.KeptShape(p.spec.rows()), p.spec.nf4 ? at::kByte : layout_.compute);
    p.weights = RowsOfFull(p) ? Rows(p.full.variable_data(), p.own) : own_of_flat();
    full_bytes_ += Bytes(p.full);
    if (layout_.frees) Free(p.full);
  }
  p.full.set_requires_grad(!p.spec.frozen);
  if (p.spec.frozen || !layout_.stored_master) p.master = p.weights;
}

void Unit::Initialise(uint64_t seed, bool frozen) {
  at::NoGradGuard no_grad;
  for (const Parameter& p : params_) {
    if (frozen || !p.spec.frozen) Initialise(p, seed);
  }
}

// A rank makes its own rows; of frozen parameters whose full tensors stay it makes all, and nobody gathers them.
void Unit::Initialise(const Parameter& p, uint64_t seed) const {
  const bool all = p.spec.frozen && !layout_.frees;
  const at::Tensor target = all ? p.full.variable_data() : p.master;
  const RowRange rows = all ? RowRange{0, p.spec.rows()} : p.own;
  if (rows.size() == 0) return;
  if (p.spec.nf4) return InitialiseNf4(p.spec, seed, rows, target);
  const bool direct = target.is_cpu() && target.scalar_type() == layout_.master;
  const at::Tensor host = direct ? target : at::empty(target.sizes(), at::dtype(layout_.master));
  if (layout_.master == at::kDouble) {
    InitRows<double>(p.spec, seed, rows, host);
  } else {
    InitRows<float>(p.spec, seed, rows, host);
  }
  if (!direct) target.copy_(host);
}

// Some rows at a time, so that the numbers of a whole parameter are never there.
void Unit::InitialiseNf4(const ParamSpec& spec, uint64_t seed, const RowRange& rows, const at::Tensor& target) const {
  const int64_t block = std::max<int64_t>(1, kInitBlock / spec.row_size());
  for (int64_t lo = 0; lo < rows.size(); lo += block) {
    const int64_t count = std::min(block, rows.size() - lo);
    const at::Tensor numbers = at::empty({count, spec.row_size()}, at::kFloat);
    InitRows<float>(spec, seed, {rows.lo + lo, rows.lo + lo + count}, numbers);
    target.narrow(0, lo, count).copy_(quant::Nf4Quantise(numbers));
  }
}

void Unit::Bind(const std::vector<at::Tensor>& parts) {
  for (Parameter& p : params_) {
    if (p.spec.frozen) continue;
    const size_t masters = layout_.stored_master ? 1 : 0;
    if (masters > 0) p.master = OwnRows(parts[0].view(layout_.master), p.offset, p);
    for (size_t s = 0; s < p.places.size(); ++s) p.state.push_back(StateIn(parts[masters + s], p, p.places[s]));
  }
}

void Unit::Unbind() {
  for (Parameter& p : params_) {
    if (p.spec.frozen) continue;
    if (layout_.stored_master) p.master.reset();
    p.state.clear();
  }
}

void Unit::TakeMasters() {
  at::NoGradGuard no_grad;
  for (const Parameter& p : params_) {
    if (!p.spec.frozen && p.own.size() > 0) p.weights.copy_(p.master);
  }
}

}  // namespace trainyard::engine
