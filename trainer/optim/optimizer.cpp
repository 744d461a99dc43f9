#include "trainer/optim/optimizer.h"

namespace trainyard::optim {

std::vector<const char*> StateNames(const Options& options) {
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    return sgd->momentum != 0 ? std::vector<const char*>{"momentum_buffer"} : std::vector<const char*>{};
  }
  return {"exp_avg", "exp_avg_sq"};
}

Options WithoutDecay(Options options) {
  std::visit([](auto& o) { o.weight_decay = 0.0; }, options);
  return options;
}

void Update(const Options& options, const at::Tensor& param, const at::Tensor& grad, std::span<const at::Tensor> state,
            double lr, double grad_scale, int64_t step) {
  TORCH_CHECK(state.size() == StateNames(options).size(), "optimizer: state of another optimizer");
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    SgdUpdate(param, grad, state.empty() ? at::Tensor() : state[0], *sgd, lr, grad_scale);
  } else {
    AdamWUpdate(param, grad, state[0], state[1], std::get<AdamWOptions>(options), lr, grad_scale, step);
  }
}

}  // namespace trainyard::optim
