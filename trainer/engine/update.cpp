// The optimizer's update, and visits of masters and optimizer state wherever they are.
#include <utility>

#include "trainer/device/device.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/engine_impl.h"

namespace trainyard::engine {

at::Tensor Saved(const Layout& layout, const Parameter& p, const at::Tensor& owned) {
  if (layout.replicas == 1 || !owned.defined()) return owned;
  return Unit::Rows(owned, ShardRows(p.own.size(), layout.replica, layout.replicas));
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
    const RowRange saved = s.layout.SavedRows(p.spec.rows());
    const int64_t first = p.offset + (saved.lo - p.own.lo) * p.spec.row_size();
    s.store->Copy(unit, s.layout.stored_master ? tensor : tensor - 1, first, saved.size() * p.spec.row_size(), to);
    return;
  }
  const at::Tensor rows = Saved(s.layout, p, master ? p.master : p.state.at(static_cast<size_t>(tensor - 1)));
  at::from_blob(to, rows.sizes(), at::dtype(rows.scalar_type())).copy_(rows);
}

}  // namespace trainyard::engine
