// The way between own rows and full tensors. What a unit is made of is in unit_storage.cpp.
#include "trainer/engine/unit.h"

#include <limits>
#include <utility>

#include "trainer/device/device.h"
#include "trainer/dist/comm.h"

namespace trainyard::engine {
namespace {

int64_t Bytes(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

}  // namespace

void Poison(const Layout& layout, const at::Tensor& t) {
  if (!layout.poison) return;
  // variable_data(): a saved tensor that is read too late must see this, and not a wrong version.
  if (t.is_floating_point()) t.variable_data().fill_(std::numeric_limits<double>::quiet_NaN());
  if (t.scalar_type() == at::kByte) t.variable_data().fill_(0xff);  // packed rows: scales that are no numbers
}

at::Tensor Unit::Piece(const at::Tensor& segments, const Parameter& p, int o) const {
  const int64_t rows = OwnedBy(p, o).size(), segment = segments.numel() / layout_.owners;
  return segments.narrow(0, o * segment + p.offset, rows * p.spec.kept_row_size()).view(p.spec.KeptShape(rows));
}

// The first `count` elements of this rank's segment in the compute type, on the device.
at::Tensor Unit::PackMaster(int64_t count) {
  if (flat_.defined() && Together() && flat_.is_cpu() == layout_.device->torch().is_cpu()) return flat_;
  at::Tensor packed = layout_.device->Empty({count}, layout_.compute);
  const bool host = layout_.offloads();  // page-locked: the copy is queued
  if (flat_.defined()) packed.narrow(0, 0, flat_.numel()).copy_(flat_, host);
  if (frozen_flat_.defined()) packed.narrow(0, trained_, segment_ - trained_).copy_(frozen_flat_, host);
  for (const Parameter& p : params_) {
    if (p.own.size() == 0 || p.spec.nf4 || p.offset >= count || FlatOf(p).defined()) continue;
    OwnRows(packed, p.offset, p).copy_(p.weights);
  }
  return packed;
}

// This rank's segment of parameters in NF4, on the device.
at::Tensor Unit::PackNf4() {
  if (packed_flat_.defined() && packed_flat_.is_cpu() == layout_.device->torch().is_cpu()) return packed_flat_;
  at::Tensor packed = layout_.device->Empty({packed_}, at::kByte);
  if (packed_flat_.defined()) return packed.copy_(packed_flat_, layout_.offloads());
  for (const Parameter& p : params_) {
    if (p.spec.nf4 && p.own.size() > 0) OwnRows(packed, p.offset, p).copy_(p.weights);
  }
  return packed;
}

void Unit::Start(Gather& gather, at::Tensor in, const std::string& label) {
  gather.in = std::move(in);
  gather.out = layout_.device->Empty({layout_.owners * gather.in.numel()}, gather.in.scalar_type());
  gather.bytes = Bytes(gather.out) + (IsFlat(gather.in) ? 0 : Bytes(gather.in));
  layout_.memory->Book(&MemoryReport::buffers, gather.bytes);
  gather.work = layout_.shard->AllGather(gather.out, gather.in, {.label = label});
}

void Unit::Clear(Gather& gather) {
  if (!gather.out.defined()) return;
  if (!IsFlat(gather.in)) Poison(layout_, gather.in);
  Poison(layout_, gather.out);
  layout_.memory->Book(&MemoryReport::buffers, -gather.bytes);
  gather = {};
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
  const bool all = layout_.frees || frozen_stale_;
  Start(gather_, PackMaster(all ? segment_ : trained_), gather_label_);
  if (all && packed_ > 0) Start(nf4_gather_, PackNf4(), gather_label_ + ", NF4");
  state_ = State::kGathering;
}

void Unit::WaitUnshard() {
  if (state_ != State::kGathering) return;
  gather_.work->Wait();
  if (nf4_gather_.work) nf4_gather_.work->Wait();
  CopyOut();
  Clear(gather_);
  Clear(nf4_gather_);
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
    const at::Tensor& segments = p.spec.nf4 ? nf4_gather_.out : gather_.out;
    if (!segments.defined() || p.offset * layout_.owners >= segments.numel()) continue;  // frozen, and not gathered
    // variable_data() has a version counter of its own: autograd must not take the refill for a change of saved
    // tensors.
    const at::Tensor full = p.full.variable_data();
    for (int o = 0; o < layout_.owners; ++o) {
      const RowRange rows = OwnedBy(p, o);
      if (rows.size() == 0 || (RowsOfFull(p) && o == layout_.owner)) continue;
      Rows(full, rows).copy_(Piece(segments, p, o));
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
