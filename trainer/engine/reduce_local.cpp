// One rank: gradients stay the tensors that autograd made, in the master type.
#include "trainer/device/device.h"
#include "trainer/engine/reduce.h"

namespace trainyard::engine {
namespace {

class LocalReducer final : public Reducer {
 public:
  LocalReducer(const Layout& layout, Units& units) : Reducer(layout, units, nullptr) {
    for (const auto& unit : units) kept_.emplace_back(unit->params().size());
  }

  void Finish() override {
    for (size_t u = 0; u < kept_.size(); ++u) {
      for (size_t i = 0; i < kept_[u].size(); ++i) {
        const ParamSpec& spec = units_[u]->params()[i].spec;
        if (kept_[u][i].defined() || spec.frozen) continue;
        kept_[u][i] = NewSums(spec.numel()).zero_().view(spec.shape);
      }
    }
  }

 protected:
  void Clear() override {
    for (auto& unit : kept_) {
      for (at::Tensor& grad : unit) Release(grad);
    }
  }
  at::Tensor Sum(int unit, int index) const override { return kept_[unit][index]; }
  void Drain(const std::function<void(int, int)>& /*read*/) override {}  // never exact
  void Add(int unit, int index, at::Tensor grad) override {
    at::Tensor& kept = kept_[unit][index];
    if (kept.defined()) {
      kept.add_(grad);
      return;
    }
    kept = grad.to(layout_.master).contiguous();  // no copy when it is so already
    layout_.device->TakeFromOperations(kept);
    layout_.memory->Book(&MemoryReport::gradients, static_cast<int64_t>(kept.nbytes()));
  }
  void Completed(int /*unit*/) override {}

 private:
  std::vector<std::vector<at::Tensor>> kept_;
};

}  // namespace

std::unique_ptr<Reducer> MakeLocalReducer(const Layout& layout, Units& units) {
  return std::make_unique<LocalReducer>(layout, units);
}

}  // namespace trainyard::engine
