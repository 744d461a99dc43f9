// What the engine shows to checkpoints, hashes and figures.
#include <array>

#include "trainer/contract/row_hash.h"
#include "trainer/device/device.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/hash.h"

namespace trainyard::engine {
namespace {

// Fills the rows that all ranks of `comm` hold from those that each has loaded, in one gather. Tensors of one type.
void GatherSaved(const Layout& layout, dist::Comm& comm, const std::vector<at::Tensor>& tensors,
                 const std::string& label) {
  if (tensors.empty() || comm.size() == 1) return;
  const auto part_of = [&](const at::Tensor& t, int rank) {
    return Unit::Rows(t, ShardRows(t.size(0), rank, comm.size()));
  };
  int64_t segment = 0;
  for (const at::Tensor& t : tensors) segment += part_of(t, 0).numel();  // the first has no fewer than any other
  at::Tensor all = layout.device->Empty({comm.size() * segment}, tensors[0].scalar_type());
  at::Tensor mine = layout.device->Empty({segment}, tensors[0].scalar_type());
  const auto for_parts = [&](int rank, const at::Tensor& buffer, auto&& copy) {
    int64_t offset = 0;
    for (const at::Tensor& t : tensors) {
      const at::Tensor part = part_of(t, rank);
      if (part.numel() > 0) copy(part, buffer.narrow(0, offset, part.numel()).view(part.sizes()));
      offset += part_of(t, 0).numel();
    }
  };
  for_parts(comm.rank(), mine, [](const at::Tensor& part, const at::Tensor& piece) { piece.copy_(part); });
  comm.AllGather(all, mine, {.label = label})->Wait();
  for (int r = 0; r < comm.size(); ++r) {
    for_parts(r, all.narrow(0, r * segment, segment),
              [](const at::Tensor& part, const at::Tensor& piece) { part.copy_(piece); });
  }
}

}  // namespace

std::vector<ShardView> Engine::Impl::ShardsOf(int unit) const {
  std::vector<ShardView> views;
  for (const Parameter& p : units[unit]->params()) {
    ShardView view{.name = p.spec.name,
                   .unit = unit,
                   .index = static_cast<int>(views.size()),
                   .global_shape = p.spec.shape,
                   .rows = layout.SavedRows(p.spec.rows()),
                   .master = Saved(layout, p, p.master),
                   .state = {},
                   .state_box = {}};
    for (size_t s = 0; s < p.places.size(); ++s) {
      const optim::State& state = p.places[s].state;
      view.state.push_back(SavedState(layout, p, s));  // undefined while it is in the file
      view.state_box.push_back({state.name, state.type, state.shape, SavedStateRows(layout, p, p.places[s])});
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<ShardView> Engine::Shards() {
  std::vector<ShardView> views;
  for (int u = 0; u < unit_count(); ++u) {
    for (ShardView& view : impl_->ShardsOf(u)) views.push_back(std::move(view));
  }
  return views;
}

void Engine::OnLoaded() {
  Impl& s = *impl_;
  at::NoGradGuard no_grad;
  for (auto& unit : s.units) unit->InvalidateAll();
  // What every owner has whole all ranks have loaded in shares, and rows those that are replicas.
  if (s.layout.replicas == 1 && !(s.layout.ranks() > 1 && optim::SumsOverRows(s.layout.optimizer))) return;
  s.Visit(Access::kUpdate, [&s](int u) {
    const Unit& unit = *s.units[u];
    const std::string label = "load " + unit.spec().name;
    std::array<std::vector<at::Tensor>, 3> masters;  // of three types: trained, frozen, in NF4
    for (const Parameter& p : unit.params()) masters[p.spec.nf4 ? 2 : p.spec.frozen ? 1 : 0].push_back(p.master);
    for (const auto& tensors : masters) GatherSaved(s.layout, *s.layout.replicate, tensors, label);
    for (size_t state = 0; state < unit.state_sections().size(); ++state) {
      std::array<std::vector<at::Tensor>, 3> tensors;  // numbers, packed rows, what every owner has whole
      for (const Parameter& p : unit.params()) {
        if (state >= p.places.size()) continue;
        const optim::State& kept = p.places[state].state;
        tensors[!kept.by_rows ? 2 : kept.type == at::kByte ? 1 : 0].push_back(p.state[state]);
      }
      GatherSaved(s.layout, *s.layout.replicate, tensors[0], label);
      GatherSaved(s.layout, *s.layout.replicate, tensors[1], label);
      GatherSaved(s.layout, *s.layout.world, tensors[2], label);
    }
  });
}

at::Tensor Engine::Impl::SavedGradient(int unit, int index) const {
  const Parameter& p = units[unit]->params()[index];
  return p.spec.frozen ? at::Tensor() : Saved(layout, p, reducer->Owned(unit, index));
}

at::Tensor Engine::GradRows(int unit, int index) const {
  TORCH_CHECK(impl_->settled, "GradRows before FinishBackward has returned true");
  return impl_->SavedGradient(unit, index);
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
  Impl& s = *impl_;
  uint64_t sum = 0;
  s.Visit(Access::kMasters, [&](int u) {
    for (const Parameter& p : s.units[u]->params()) {
      const RowRange rows = s.layout.SavedRows(p.spec.rows());
      if (rows.size() == 0) continue;
      const at::Tensor host = Saved(s.layout, p, p.master).to(at::kCPU).contiguous();
      sum += contract::HashRows(p.spec.name, rows.lo, rows.size(), static_cast<int64_t>(host.nbytes()) / rows.size(),
                                host.const_data_ptr());
    }
  });
  if (s.layout.ranks() > 1) {
    at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::dtype(at::kLong)).to(s.layout.device->torch());
    s.layout.world->AllReduce(total, dist::Reduce::kInt64, {.label = "parameter hash"})->Wait();
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
