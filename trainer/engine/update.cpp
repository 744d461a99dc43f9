// The optimizer's update, and visits of masters and optimizer state wherever they are.
#include <span>
#include <utility>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/engine_impl.h"

namespace trainyard::engine {

RowRange Layout::SavedOfWhole(int64_t rows) const { return ShardRows(rows, world->rank(), world->size()); }

at::Tensor Saved(const Layout& layout, const Parameter& p, const at::Tensor& owned) {
  if (layout.replicas == 1 || !owned.defined()) return owned;
  return Unit::Rows(owned, ShardRows(p.own.size(), layout.replica, layout.replicas));
}

RowRange SavedStateRows(const Layout& layout, const Parameter& p, const StatePlace& place) {
  return place.state.by_rows ? layout.SavedRows(p.spec.rows()) : layout.SavedOfWhole(place.state.shape[0]);
}

at::Tensor SavedState(const Layout& layout, const Parameter& p, size_t state) {
  if (state >= p.state.size()) return {};  // in the file
  const StatePlace& place = p.places[state];
  if (place.state.by_rows) return Saved(layout, p, p.state[state]);
  return Unit::Rows(p.state[state], SavedStateRows(layout, p, place));
}

void Engine::Impl::Visit(Access access, const std::function<void(int unit)>& fn) {
  if (store) {
    store->ForEach(access, fn);
    return;
  }
  for (int u = 0; u < static_cast<int>(units.size()); ++u) fn(u);
}

void Engine::Step(double lr, double grad_scale, int64_t step) {
  Impl& s = *impl_;
  at::NoGradGuard no_grad;
  TORCH_CHECK(s.settled, "Step before FinishBackward has returned true");
  for (auto& unit : s.units) unit->Invalidate();
  const optim::Options& options = s.options.optimizer;
  const optim::Options no_decay = optim::WithoutDecay(options);
  const at::Device where = s.layout.offloads() ? at::Device(at::kCPU) : s.layout.device->torch();
  s.Visit(Access::kUpdate, [&](int u) {
    if (s.before_update) s.before_update(u);
    if (optim::SumsOverRows(options)) return s.UpdateWithSums(u, lr, grad_scale, step);
    auto& params = s.units[u]->params();
    for (size_t i = 0; i < params.size(); ++i) {
      Parameter& p = params[i];
      if (p.own.size() == 0 || p.spec.frozen) continue;
      // With offload the update runs on the host, whatever is on the device: copies of gradients, and of masters that
      // are rows of full tensors.
      const at::Tensor grad = s.reducer->Owned(u, static_cast<int>(i)).to(where);
      const at::Tensor master = p.master.to(where);
      optim::Update(p.spec.decay ? options : no_decay, master, grad, p.state, lr, grad_scale, step);
      if (!master.is_same(p.master)) p.master.copy_(master);
    }
  });
}

// One sum over the owners for what all parameters of the unit need of their rows, and one for the sizes of their
// updates; in the order of the ranks, so that replicas have the same bits.
void Engine::Impl::UpdateWithSums(int u, double lr, double grad_scale, int64_t step) {
  const auto& adafactor = std::get<optim::AdafactorOptions>(options.optimizer);
  const optim::AdafactorOptions no_decay = std::get<optim::AdafactorOptions>(optim::WithoutDecay(options.optimizer));
  const at::Device where = layout.offloads() ? at::Device(at::kCPU) : layout.device->torch();
  const auto over_owners = [&](std::vector<double>& sums) {
    if (layout.owners == 1 || sums.empty()) return;
    const at::Tensor host = at::from_blob(sums.data(), {std::ssize(sums)}, at::kDouble);
    const at::Tensor all = host.to(layout.device->torch());
    layout.shard->AllReduce(all, dist::Reduce::kOrderedSum, {.label = "statistics " + units[u]->spec().name})->Wait();
    if (!all.is_same(host)) host.copy_(all);
  };
  std::vector<optim::AdafactorUpdate> updates;
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // masters that are updated in another memory
  std::vector<size_t> ends;
  auto& params = units[u]->params();
  for (size_t i = 0; i < params.size(); ++i) {
    Parameter& p = params[i];
    if (p.spec.frozen) continue;
    const at::Tensor master = p.master.to(where);
    if (!master.is_same(p.master)) copied.emplace_back(p.master, master);
    updates.emplace_back(p.spec.decay ? adafactor : no_decay, master, reducer->Owned(u, static_cast<int>(i)).to(where),
                         p.state, p.spec.rows(), lr, grad_scale, step);
    ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<size_t>(updates.back().sums()));
  }
  std::vector<double> sums(ends.empty() ? 0 : ends.back()), squares;
  const auto part = [&](size_t i) {
    const size_t first = i == 0 ? 0 : ends[i - 1];
    return std::span<double>(sums).subspan(first, ends[i] - first);
  };
  for (size_t i = 0; i < updates.size(); ++i) updates[i].Collect(part(i));
  over_owners(sums);
  for (size_t i = 0; i < updates.size(); ++i) squares.push_back(updates[i].Combine(part(i)));
  over_owners(squares);
  for (size_t i = 0; i < updates.size(); ++i) updates[i].Apply(squares[i]);
  for (const auto& [to, from] : copied) to.copy_(from);
}

void Engine::BeforeUpdate(std::function<void(int unit)> hook) { impl_->before_update = std::move(hook); }

void Engine::VisitShards(bool writes, const std::function<void(int unit, const std::vector<ShardView>& shards)>& fn) {
  Impl& s = *impl_;
  at::NoGradGuard no_grad;
  if (writes) s.layout.device->Synchronize();  // copies from host memory may be under way
  s.Visit(writes ? Access::kUpdate : Access::kRead, [&](int u) { fn(u, s.ShardsOf(u)); });
}

bool Engine::state_in_memory() const { return !impl_->store; }

void Engine::CopyShard(int unit, int index, int tensor, void* to) const {
  const Impl& s = *impl_;
  const Parameter& p = s.units[unit]->params().at(static_cast<size_t>(index));
  const bool master = tensor == 0;
  if (s.store && !p.spec.frozen && !(master && !s.layout.stored_master)) {
    const int64_t section = s.layout.stored_master ? tensor : tensor - 1;
    if (master) {
      const RowRange saved = s.layout.SavedRows(p.spec.rows());
      const int64_t row_bytes = p.spec.row_size() * static_cast<int64_t>(c10::elementSize(s.layout.master));
      const int64_t first = p.offset * static_cast<int64_t>(c10::elementSize(s.layout.master));
      s.store->Copy(unit, section, first + (saved.lo - p.own.lo) * row_bytes, saved.size() * row_bytes, to);
      return;
    }
    const StatePlace& place = p.places.at(static_cast<size_t>(tensor - 1));
    const RowRange saved = SavedStateRows(s.layout, p, place);
    const int64_t from = saved.lo - (place.state.by_rows ? p.own.lo : 0);
    s.store->Copy(unit, section, place.offset + from * place.row_bytes, saved.size() * place.row_bytes, to);
    return;
  }
  const at::Tensor rows =
      master ? Saved(s.layout, p, p.master) : SavedState(s.layout, p, static_cast<size_t>(tensor - 1));
  at::from_blob(to, rows.sizes(), at::dtype(rows.scalar_type())).copy_(rows);
}

}  // namespace trainyard::engine
