#include "trainer/engine/unit.h"

#include <limits>

#include <ATen/Parallel.h>

#include "trainer/device/device.h"
#include "trainer/dist/comm.h"
#include "trainer/engine/init.h"

namespace trainyard::engine {
namespace {

int64_t Bytes(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

template <typename T>
void InitRows(const ParamSpec& spec, uint64_t seed, const RowRange& rows, const at::Tensor& out) {
  T* data = out.mutable_data_ptr<T>();
  const int64_t base = rows.lo * spec.row_size();
  at::parallel_for(0, rows.size() * spec.row_size(), 1 << 14,
                   [&](int64_t lo, int64_t hi) { InitElements(spec, seed, base + lo, base + hi, data + lo); });
}

}  // namespace

void Poison(const Layout& layout, const at::Tensor& t) {
  // variable_data(): a saved tensor that is read too late must see this, and not a wrong version.
  if (layout.poison && t.is_floating_point()) t.variable_data().fill_(std::numeric_limits<double>::quiet_NaN());
}

Unit::Unit(const Layout& layout, UnitSpec spec)
    : layout_(layout), spec_(std::move(spec)), gather_label_("gather " + spec_.name) {
  PlaceSegments();
  at::NoGradGuard no_grad;
  AllocateFlat();
  at::Tensor states;
  if (layout_.offload != Offload::kNvme) {
    states = NewZeros(layout_.offloads(), {layout_.states, trained_}, layout_.master,
                      layout_.offloads() ? &MemoryReport::host_optimizer : &MemoryReport::optimizer);
  }
  for (Parameter& p : params_) Allocate(p, states);
  if (!layout_.frees) layout_.memory->Book(&MemoryReport::params, full_bytes_);
  if (FullOfFlat()) state_ = State::kFull;
}

void Unit::PlaceSegments() {
  for (const ParamSpec& spec : spec_.params) {
    Parameter p;
    p.spec = spec;
    p.rows_per_owner = (spec.rows() + layout_.owners - 1) / layout_.owners;
    p.own = layout_.OwnRows(spec.rows());
    params_.push_back(std::move(p));
  }
  for (const bool frozen : {false, true}) {
    for (Parameter& p : params_) {
      if (p.spec.frozen != frozen) continue;
      p.offset = segment_;
      segment_ += p.rows_per_owner * p.spec.row_size();
      trained_count_ += frozen ? 0 : 1;
    }
    if (!frozen) trained_ = segment_;
  }
}

// With one owner whose weights are the masters, full tensors are views of the flat buffer. Else, where full tensors
// stay, own rows are rows of them: of frozen parameters, which need no other type, and of all that an update writes
// there.
bool Unit::RowsOfFull(const Parameter& p) const {
  return !FullOfFlat() && !layout_.frees && (p.spec.frozen || layout_.current());
}

at::ScalarType Unit::FlatType() const { return layout_.stored_master ? layout_.compute : layout_.master; }

// Trained and frozen weights share one flat buffer where both are of one type and in one memory.
bool Unit::Together() const {
  return layout_.compute == FlatType() && (!layout_.offloads() || layout_.frees || layout_.aliased);
}

const at::Tensor& Unit::FlatOf(const Parameter& p) const { return p.spec.frozen && !Together() ? frozen_flat_ : flat_; }

at::Tensor Unit::OwnRows(const at::Tensor& flat, int64_t offset, const Parameter& p) const {
  std::vector<int64_t> shape = p.spec.shape;
  shape[0] = p.own.size();
  return flat.narrow(0, offset, shape[0] * p.spec.row_size()).view(shape);
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
  if (Together() || !layout_.frees || !has_frozen()) return;
  frozen_flat_ = NewZeros(host, {segment_ - trained_}, layout_.compute,
                          host ? &MemoryReport::host_weights : &MemoryReport::master);
}

void Unit::Allocate(Parameter& p, const at::Tensor& states) {
  const auto own_of_flat = [&] {
    const at::Tensor& flat = FlatOf(p);
    return OwnRows(flat, p.offset - (flat.is_same(frozen_flat_) ? trained_ : 0), p);
  };
  if (FullOfFlat()) {
    p.weights = own_of_flat();
    p.full = p.weights.variable_data();
  } else {
    p.full = layout_.device->Empty(p.spec.shape, layout_.compute);
    p.weights = RowsOfFull(p) ? Rows(p.full.variable_data(), p.own) : own_of_flat();
    full_bytes_ += Bytes(p.full);
    if (layout_.frees) Free(p.full);
  }
  p.full.set_requires_grad(!p.spec.frozen);
  if (p.spec.frozen || !layout_.stored_master) p.master = p.weights;
  if (p.spec.frozen || !states.defined()) return;
  for (int64_t s = 0; s < layout_.states; ++s) p.state.push_back(OwnRows(states[s], p.offset, p));
}

void Unit::Initialise(uint64_t seed) {
  at::NoGradGuard no_grad;
  for (const Parameter& p : params_) Initialise(p, seed);
}

// A rank makes its own rows; of frozen parameters whose full tensors stay it makes all, and nobody gathers them.
void Unit::Initialise(const Parameter& p, uint64_t seed) const {
  const bool all = p.spec.frozen && !layout_.frees;
  const at::Tensor target = all ? p.full.variable_data() : p.master;
  const RowRange rows = all ? RowRange{0, p.spec.rows()} : p.own;
  if (rows.size() == 0) return;
  const bool direct = target.is_cpu() && target.scalar_type() == layout_.master;
  const at::Tensor host = direct ? target : at::empty(target.sizes(), at::dtype(layout_.master));
  if (layout_.master == at::kDouble) {
    InitRows<double>(p.spec, seed, rows, host);
  } else {
    InitRows<float>(p.spec, seed, rows, host);
  }
  if (!direct) target.copy_(host);
}

void Unit::Bind(const std::vector<at::Tensor>& parts) {
  for (Parameter& p : params_) {
    if (p.spec.frozen) continue;
    size_t part = 0;
    if (layout_.stored_master) p.master = OwnRows(parts[part++], p.offset, p);
    while (part < parts.size()) p.state.push_back(OwnRows(parts[part++], p.offset, p));
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

at::Tensor Unit::Piece(const at::Tensor& segments, const Parameter& p, int o) const {
  std::vector<int64_t> shape = p.spec.shape;
  shape[0] = OwnedBy(p, o).size();
  const int64_t segment = segments.numel() / layout_.owners;
  return segments.narrow(0, o * segment + p.offset, shape[0] * p.spec.row_size()).view(shape);
}

// The first `count` elements of this rank's segment in the compute type, on the device.
at::Tensor Unit::PackMaster(int64_t count) {
  if (flat_.defined() && Together() && flat_.is_cpu() == layout_.device->torch().is_cpu()) return flat_;
  at::Tensor packed = layout_.device->Empty({count}, layout_.compute);
  const bool host = layout_.offloads();  // page-locked: the copy is queued
  if (flat_.defined()) packed.narrow(0, 0, flat_.numel()).copy_(flat_, host);
  if (frozen_flat_.defined()) packed.narrow(0, trained_, segment_ - trained_).copy_(frozen_flat_, host);
  for (const Parameter& p : params_) {
    if (p.own.size() == 0 || p.offset >= count || FlatOf(p).defined()) continue;
    OwnRows(packed, p.offset, p).copy_(p.weights);
  }
  return packed;
}

void Unit::UnshardAsync() {
  if (released_) Reshard();
  if (state_ != State::kSharded) return;
  at::NoGradGuard no_grad;
  if (layout_.owners == 1) {  // all rows are here, but of another type or in other memory
    Refill();
    for (Parameter& p : params_) {
      if (!RowsOfFull(p)) p.full.variable_data().copy_(p.weights, layout_.offloads());
    }
    state_ = State::kFull;
    return;
  }
  const int64_t count = layout_.frees || frozen_stale_ ? segment_ : trained_;
  gather_in_ = PackMaster(count);
  gather_out_ = layout_.device->Empty({layout_.owners * count}, layout_.compute);
  gather_bytes_ = Bytes(gather_out_) + (gather_in_.is_same(flat_) ? 0 : Bytes(gather_in_));
  layout_.memory->Book(&MemoryReport::buffers, gather_bytes_);
  gather_ = layout_.shard->AllGather(gather_out_, gather_in_, {.label = gather_label_});
  state_ = State::kGathering;
}

void Unit::WaitUnshard() {
  if (state_ != State::kGathering) return;
  gather_->Wait();
  gather_.reset();
  CopyOut();
  if (!gather_in_.is_same(flat_)) Poison(layout_, gather_in_);
  Poison(layout_, gather_out_);
  gather_in_.reset();
  gather_out_.reset();
  layout_.memory->Book(&MemoryReport::buffers, -gather_bytes_);
  state_ = State::kFull;
}

// Full tensors that were freed get their memory back.
void Unit::Refill() {
  if (!layout_.frees) return;
  for (Parameter& p : params_) {
    layout_.device->ResizeStorage(p.full, static_cast<int64_t>(p.full.nbytes()));
    p.gathered = true;
  }
  layout_.memory->Book(&MemoryReport::params, full_bytes_);
}

void Unit::CopyOut() {
  at::NoGradGuard no_grad;
  Refill();
  for (Parameter& p : params_) {
    if (p.offset * layout_.owners >= gather_out_.numel()) continue;  // frozen, and not gathered
    // variable_data() has a version counter of its own: autograd must not take the refill for a change of saved
    // tensors.
    const at::Tensor full = p.full.variable_data();
    for (int o = 0; o < layout_.owners; ++o) {
      const RowRange rows = OwnedBy(p, o);
      if (rows.size() == 0 || (RowsOfFull(p) && o == layout_.owner)) continue;
      Rows(full, rows).copy_(Piece(gather_out_, p, o));
    }
  }
  frozen_stale_ = false;
}

void Unit::Free(const at::Tensor& full) const {
  Poison(layout_, full);
  if (!layout_.poison) layout_.device->ResizeStorage(full, 0);
}

void Unit::FreeGathered(Parameter& p) {
  if (!p.gathered) return;
  p.gathered = false;
  Free(p.full);
  layout_.memory->Book(&MemoryReport::params, -Bytes(p.full));
}

void Unit::Reshard() {
  if (!layout_.frees) return;
  WaitUnshard();
  if (state_ != State::kFull) return;
  for (Parameter& p : params_) FreeGathered(p);
  released_ = false;
  state_ = State::kSharded;
}

void Unit::Release(int index) {
  if (!layout_.frees || state_ != State::kFull) return;
  FreeGathered(params_[static_cast<size_t>(index)]);
  released_ = true;
}

void Unit::Invalidate() {
  WaitUnshard();
  Reshard();
  if (layout_.owners > 1 || !layout_.current()) state_ = State::kSharded;
}

void Unit::InvalidateAll() {
  Invalidate();
  frozen_stale_ = has_frozen() && !layout_.frees && layout_.owners > 1;
}

}  // namespace trainyard::engine
