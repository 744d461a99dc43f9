#include "trainer/engine/unit.h"

#include <ATen/Parallel.h>

#include "trainer/device/device.h"
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

Unit::Unit(const Layout& layout, UnitSpec spec, uint64_t seed)
    : layout_(layout), spec_(std::move(spec)), gather_label_("gather " + spec_.name) {
  for (const ParamSpec& param : spec_.params) {
    Parameter p;
    p.spec = param;
    p.rows_per_owner = (param.rows() + layout_.owners - 1) / layout_.owners;
    p.own = ShardRows(param.rows(), layout_.owner, layout_.owners);
    p.offset = segment_;
    segment_ += p.rows_per_owner * param.row_size();
    params_.push_back(std::move(p));
  }
  Allocate(seed);
}

void Unit::Allocate(uint64_t seed) {
  at::NoGradGuard no_grad;
  device::Device& device = *layout_.device;
  // With one owner the full tensors are views of the flat master buffer; with more, master rows are views of the full
  // tensors, or of a flat buffer where full tensors come and go or have another type.
  const bool rows_of_full = layout_.aliased && layout_.owners > 1;
  if (!rows_of_full) {
    master_flat_ = device.Empty({segment_}, layout_.master);
    master_flat_.zero_();
    layout_.memory->Book(layout_.aliased ? &MemoryReport::params : &MemoryReport::master, Bytes(master_flat_));
  }
  at::Tensor states = device.Empty({layout_.states, segment_}, layout_.master);
  states.zero_();
  layout_.memory->Book(&MemoryReport::optimizer, Bytes(states));
  for (Parameter& p : params_) {
    std::vector<int64_t> own_shape = p.spec.shape;
    own_shape[0] = p.own.size();
    const int64_t count = p.own.size() * p.spec.row_size();
    const auto own_rows = [&](const at::Tensor& flat) { return flat.narrow(0, p.offset, count).view(own_shape); };
    if (layout_.aliased && !rows_of_full) {
      p.master = own_rows(master_flat_);
      p.full = p.master.variable_data();
    } else {
      p.full = device.Empty(p.spec.shape, layout_.compute);
      p.master = rows_of_full ? Rows(p.full.variable_data(), p.own) : own_rows(master_flat_);
      full_bytes_ += Bytes(p.full);
      if (layout_.frees) device.ResizeStorage(p.full, 0);
    }
    for (int64_t s = 0; s < layout_.states; ++s) p.state.push_back(own_rows(states[s]));
    p.full.set_requires_grad(true);
    if (count == 0) continue;
    const at::Tensor host = p.master.is_cpu() ? p.master : at::empty(own_shape, at::dtype(layout_.master));
    if (layout_.master == at::kDouble) {
      InitRows<double>(p.spec, seed, p.own, host);
    } else {
      InitRows<float>(p.spec, seed, p.own, host);
    }
    if (!p.master.is_cpu()) p.master.copy_(host);
  }
  if (!layout_.frees) layout_.memory->Book(&MemoryReport::params, full_bytes_);
  if (layout_.aliased && !rows_of_full) state_ = State::kFull;
}

at::Tensor Unit::Piece(const at::Tensor& segments, const Parameter& p, int o) const {
  std::vector<int64_t> shape = p.spec.shape;
  shape[0] = OwnedBy(p, o).size();
  return segments.narrow(0, o * segment_ + p.offset, shape[0] * p.spec.row_size()).view(shape);
}

at::Tensor Unit::PackMaster() {
  if (master_flat_.defined()) {
    if (layout_.compute == layout_.master) return master_flat_;
    return layout_.device->Empty({segment_}, layout_.compute).copy_(master_flat_);
  }
  at::Tensor packed = layout_.device->Empty({segment_}, layout_.compute);
  for (const Parameter& p : params_) {
    if (p.own.size() > 0) {
      packed.narrow(0, p.offset, p.own.size() * p.spec.row_size()).view(p.master.sizes()).copy_(p.master);
    }
  }
  return packed;
}

void Unit::UnshardAsync() {
  if (state_ != State::kSharded) return;
  at::NoGradGuard no_grad;
  if (layout_.owners == 1) {  // all rows are here: only the type differs
    for (Parameter& p : params_) p.full.variable_data().copy_(p.master);
    state_ = State::kFull;
    return;
  }
  gather_in_ = PackMaster();
  gather_out_ = layout_.device->Empty({layout_.owners * segment_}, layout_.compute);
  gather_bytes_ = Bytes(gather_out_) + (gather_in_.is_same(master_flat_) ? 0 : Bytes(gather_in_));
  layout_.memory->Book(&MemoryReport::buffers, gather_bytes_);
  gather_ = layout_.comm->AllGather(gather_out_, gather_in_, {.label = gather_label_});
  state_ = State::kGathering;
}

void Unit::WaitUnshard() {
  if (state_ != State::kGathering) return;
  gather_->Wait();
  gather_.reset();
  CopyOut();
  gather_in_.reset();
  gather_out_.reset();
  layout_.memory->Book(&MemoryReport::buffers, -gather_bytes_);
  state_ = State::kFull;
}

void Unit::CopyOut() {
  at::NoGradGuard no_grad;
  if (layout_.frees) {
    for (Parameter& p : params_) layout_.device->ResizeStorage(p.full, static_cast<int64_t>(p.full.nbytes()));
    layout_.memory->Book(&MemoryReport::params, full_bytes_);
  }
  for (Parameter& p : params_) {
    // variable_data() has a version counter of its own: autograd must not take the refill for a change of saved
    // tensors.
    const at::Tensor full = p.full.variable_data();
    for (int o = 0; o < layout_.owners; ++o) {
      const RowRange rows = OwnedBy(p, o);
      if (rows.size() == 0 || (layout_.aliased && o == layout_.owner)) continue;
      Rows(full, rows).copy_(Piece(gather_out_, p, o));
    }
  }
}

void Unit::Reshard() {
  if (!layout_.frees) return;
  WaitUnshard();
  if (state_ != State::kFull) return;
  for (Parameter& p : params_) layout_.device->ResizeStorage(p.full, 0);
  layout_.memory->Book(&MemoryReport::params, -full_bytes_);
  state_ = State::kSharded;
}

void Unit::Invalidate() {
  WaitUnshard();
  Reshard();
  if (layout_.owners > 1 || !layout_.aliased) state_ = State::kSharded;
}

}  // namespace trainyard::engine
