#include "trainer/optim/optimizer.h"

#include <stdexcept>

#include "trainer/contract/packed.h"

namespace trainyard::optim {

std::vector<State> States(const Options& options, at::IntArrayRef shape, at::ScalarType master) {
  const std::vector<int64_t> whole = shape.vec();
  const int64_t rows = shape[0], size = c10::multiply_integers(shape.slice(1)), dims = std::ssize(whole);
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    if (sgd->momentum == 0) return {};
    return {{"momentum_buffer", master, whole}};
  }
  if (std::holds_alternative<AdafactorOptions>(options)) {
    if (dims == 1) return {{"variance", at::kFloat, whole}};
    return {{"row_var", at::kFloat, {rows}}, {"col_var", at::kFloat, {size}, /*by_rows=*/false}};
  }
  if (std::holds_alternative<AdamW8bitOptions>(options) && contract::MomentsInEightBits(dims, rows * size)) {
    const std::vector<int64_t> packed = {rows, contract::MomentRowBytes(size)};
    return {{"exp_avg_8bit", at::kByte, packed}, {"exp_avg_sq_8bit", at::kByte, packed}};
  }
  return {{"exp_avg", master, whole}, {"exp_avg_sq", master, whole}};
}

Options WithoutDecay(Options options) {
  std::visit([](auto& o) { o.weight_decay = 0.0; }, options);
  return options;
}

bool SumsOverRows(const Options& options) { return std::holds_alternative<AdafactorOptions>(options); }

void CheckMasters(const Options& options, at::ScalarType master) {
  const bool any = std::holds_alternative<AdamWOptions>(options) || std::holds_alternative<SgdOptions>(options);
  if (!any && master != at::kFloat) {
    throw std::invalid_argument("optimizer: AdamW8bit and Adafactor train float weights only");
  }
}

void Update(const Options& options, const at::Tensor& param, const at::Tensor& grad, std::span<const at::Tensor> state,
            double lr, double grad_scale, int64_t step) {
  const auto adamw = [&](const AdamWOptions& o) {
    TORCH_CHECK(state.size() == 2, "optimizer: state of another optimizer");
    AdamWUpdate(param, grad, state[0], state[1], o, lr, grad_scale, step);
  };
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    TORCH_CHECK(state.size() == (sgd->momentum != 0 ? 1U : 0U), "optimizer: state of another optimizer");
    SgdUpdate(param, grad, state.empty() ? at::Tensor() : state[0], *sgd, lr, grad_scale);
  } else if (const auto* factored = std::get_if<AdafactorOptions>(&options)) {
    TORCH_CHECK(state.size() == (param.dim() > 1 ? 2U : 1U), "optimizer: state of another optimizer");
    AdafactorStep(*factored, param, grad, state, lr, grad_scale, step);
  } else if (const auto* packed = std::get_if<AdamW8bitOptions>(&options)) {
    // What is too small for 8 bits has the state of AdamW.
    if (state.size() != 2 || state[0].scalar_type() != at::kByte) return adamw(*packed);
    AdamW8bitUpdate(param, grad, state[0], state[1], *packed, lr, grad_scale, step);
  } else {
    adamw(std::get<AdamWOptions>(options));
  }
}

}  // namespace trainyard::optim
