// What the engine shows to checkpoints, hashes and figures.
#include "trainer/device/device.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/hash.h"

namespace trainyard::engine {
namespace {

// Rows by the shard rule over all ranks, also where every rank owns all rows; relative to the owned ones.
at::Tensor RankRows(const Layout& layout, const Parameter& p, const at::Tensor& owned) {
  if (layout.owners == layout.world) return owned;
  return Unit::Rows(owned, ShardRows(p.spec.rows(), layout.rank, layout.world));
}

// Fills the rows of all ranks of tensors that every rank holds in full from the rows of each rank, in one gather.
void GatherFull(const Layout& layout, const std::vector<Parameter>& params, const std::vector<at::Tensor>& tensors,
                const std::string& label) {
  int64_t segment = 0;
  for (const Parameter& p : params) segment += (p.spec.rows() + layout.world - 1) / layout.world * p.spec.row_size();
  at::Tensor all = layout.device->Empty({layout.world * segment}, layout.master);
  at::Tensor mine = layout.device->Empty({segment}, layout.master);
  const auto for_rows = [&](int rank, const at::Tensor& buffer, auto&& copy) {
    int64_t offset = 0;
    for (size_t i = 0; i < params.size(); ++i) {
      const RowRange rows = ShardRows(params[i].spec.rows(), rank, layout.world);
      const at::Tensor part = Unit::Rows(tensors[i], rows);
      if (rows.size() > 0) copy(part, buffer.narrow(0, offset, part.numel()).view(part.sizes()));
      offset += (params[i].spec.rows() + layout.world - 1) / layout.world * params[i].spec.row_size();
    }
  };
  for_rows(layout.rank, mine, [](const at::Tensor& part, const at::Tensor& piece) { piece.copy_(part); });
  layout.comm->AllGather(all, mine, {.label = label})->Wait();
  for (int r = 0; r < layout.world; ++r) {
    for_rows(r, all.narrow(0, r * segment, segment),
             [](const at::Tensor& part, const at::Tensor& piece) { part.copy_(piece); });
  }
}

}  // namespace

std::vector<ShardView> Engine::Shards() {
  const Impl& s = *impl_;
  std::vector<ShardView> views;
  for (const auto& unit : s.units) {
    for (const Parameter& p : unit->params()) {
      ShardView view{p.spec.name,
                     p.spec.shape,
                     ShardRows(p.spec.rows(), s.layout.rank, s.layout.world),
                     RankRows(s.layout, p, p.master),
                     {}};
      for (const at::Tensor& state : p.state) view.state.push_back(RankRows(s.layout, p, state));
      views.push_back(std::move(view));
    }
  }
  return views;
}

void Engine::OnLoaded() {
  Impl& s = *impl_;
  at::NoGradGuard no_grad;
  for (auto& unit : s.units) {
    unit->Invalidate();
    if (s.layout.owners == s.layout.world) continue;  // gathered at the next use
    const auto& params = unit->params();
    for (int64_t t = -1; t < s.layout.states; ++t) {  // the masters, then each tensor of the optimizer
      std::vector<at::Tensor> tensors;
      for (const Parameter& p : params) tensors.push_back(t < 0 ? p.master : p.state[static_cast<size_t>(t)]);
      GatherFull(s.layout, params, tensors, "load " + unit->spec().name);
    }
  }
}

at::Tensor Engine::Impl::RankGradient(int unit, int index) const {
  return RankRows(layout, units[unit]->params()[index], reducer.Owned(unit, index));
}

at::Tensor Engine::GradRows(int unit, int index) const {
  TORCH_CHECK(impl_->settled, "GradRows before FinishBackward has returned true");
  return impl_->RankGradient(unit, index);
}

const std::string& Engine::ExactReason() const {
  static const std::string kNone;
  return impl_->exact ? impl_->exact->reason() : kNone;
}

std::map<std::string, int> Engine::ExactShifts() const {
  return impl_->exact ? impl_->exact->shifts() : std::map<std::string, int>();
}

void Engine::SetExactShifts(const std::map<std::string, int>& shifts) {
  if (impl_->exact) impl_->exact->set_shifts(shifts);
}

std::string Engine::ParameterHash() {
  const Impl& s = *impl_;
  uint64_t sum = 0;
  for (const auto& unit : s.units) {
    for (const Parameter& p : unit->params()) {
      const RowRange rows = ShardRows(p.spec.rows(), s.layout.rank, s.layout.world);
      if (rows.size() == 0) continue;
      const at::Tensor host = RankRows(s.layout, p, p.master).to(at::kCPU).contiguous();
      sum += HashRows(p.spec.name, rows.lo, rows.size(), static_cast<int64_t>(host.nbytes()) / rows.size(),
                      host.const_data_ptr());
    }
  }
  if (s.layout.world > 1) {
    at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::dtype(at::kLong)).to(s.layout.device->torch());
    s.layout.comm->AllReduce(total, dist::Reduce::kInt64, {.label = "parameter hash"})->Wait();
    sum = static_cast<uint64_t>(total.item<int64_t>());
  }
  return HashText(sum);
}

MemoryReport Engine::memory() const { return impl_->memory; }
const EngineOptions& Engine::options() const { return impl_->options; }
int Engine::unit_count() const { return static_cast<int>(impl_->units.size()); }
const UnitSpec& Engine::unit(int index) const { return impl_->units[index]->spec(); }

int64_t Engine::parameter_count() const {
  int64_t count = 0;
  for (const auto& unit : impl_->units) {
    for (const Parameter& p : unit->params()) count += p.spec.numel();
  }
  return count;
}

}  // namespace trainyard::engine
