#include "trainer/engine/reduce.h"

#include "trainer/device/device.h"

namespace trainyard::engine {

Reducer::Reducer(const Layout& layout, Units& units, GradientSums* exact)
    : layout_(layout), units_(units), exact_(exact), pending_(units.size(), 0) {
  int count = 0;
  for (const auto& unit : units) {
    first_.push_back(count);
    count += static_cast<int>(unit->params().size());
    read_.emplace_back(unit->params().size());
  }
}

void Reducer::BeginStep() {
  if (exact_) exact_->BeginStep();
  for (auto& unit : read_) {
    for (at::Tensor& grad : unit) Release(grad);
  }
  Clear();
}

void Reducer::BeginMicroBatch(bool last, bool padding) {
  last_ = last;
  padding_ = padding;
  for (size_t u = 0; u < units_.size(); ++u) pending_[u] = units_[u]->trained_count();
}

bool Reducer::Take(int u, int index) {
  at::Tensor& held = units_[u]->params()[index].full.mutable_grad();
  at::Tensor grad = std::move(held);
  held = at::Tensor();
  if (!padding_) Add(u, index, std::move(grad));
  return --pending_[u] == 0;
}

void Reducer::Complete(int u) {
  pending_[u] = 0;
  Completed(u);
}

void Reducer::Put(int u, int index, const at::Tensor& rows, bool add, at::Tensor to) {
  if (exact_) {
    exact_->Add(first_[u] + index, rows, add, to);
  } else if (add) {
    to.add_(rows);
  } else {
    to.copy_(rows);
  }
}

bool Reducer::Settle() {
  if (!exact_->Settle(*layout_.world, layout_.device->torch())) return false;
  Drain([this](int u, int index) {
    at::Tensor& grad = read_[u][index];
    grad = exact_->Read(first_[u] + index, Sum(u, index));
    layout_.device->TakeFromOperations(grad);
    layout_.memory->Book(&MemoryReport::gradients, static_cast<int64_t>(grad.nbytes()));
  });
  return true;
}

at::Tensor Reducer::NewSums(int64_t count, int64_t MemoryReport::* term) {
  at::Tensor t = layout_.device->Empty({count}, SumType());
  layout_.memory->Book(term, static_cast<int64_t>(t.nbytes()));
  Poison(layout_, t);
  return t;
}

void Reducer::Release(at::Tensor& t, int64_t MemoryReport::* term) {
  if (!t.defined()) return;
  layout_.memory->Book(term, -static_cast<int64_t>(t.nbytes()));
  Poison(layout_, t);
  t.reset();
}

std::unique_ptr<Reducer> MakeReducer(const Layout& layout, Units& units, const ReduceOptions& options) {
  if (layout.ranks() == 1 && !options.exact) return MakeLocalReducer(layout, units);
  if (layout.owners == 1) return MakeReplicatedReducer(layout, units, options);
  return MakeShardedReducer(layout, units, options);
}

}  // namespace trainyard::engine
