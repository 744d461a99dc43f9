#include "trainer/optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/optim/elements.h"
#include "trainer/optim/kernels.h"

namespace trainyard::optim {
namespace {

constexpr double kTiny = 1e-30;     // added to every square, so that nothing is divided by zero (section 3)
constexpr double kThreshold = 1.0;  // d
constexpr double kDecayExponent = -0.8;

at::Tensor AsMatrix(const at::Tensor& t) {
  TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous(), "Adafactor: tensors must be contiguous and float");
  if (t.dim() == 1) return t.view({1, t.size(0)});
  return t.view({t.size(0), c10::multiply_integers(t.sizes().slice(1))});
}

// fn(row) for all rows, in parallel where that is worth it.
template <typename Fn>
void ForRows(int64_t rows, int64_t columns, const Fn& fn) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns)), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) fn(r);
  });
}

// In the order of the rows, whatever the number of threads.
double Total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

AdafactorUpdate::AdafactorUpdate(const AdafactorOptions& options, at::Tensor param, at::Tensor grad,
                                 std::span<const at::Tensor> state, int64_t rows, double lr, double grad_scale,
                                 int64_t step)
    : param_(AsMatrix(param)),
      grad_(AsMatrix(grad)),
      rows_(state[0]),
      columns_state_(state.size() > 1 ? state[1] : state[0]),
      factored_(param.dim() > 1),
      whole_rows_(rows),
      columns_(param_.size(1)),
      keep_(1.0 - lr * options.weight_decay),
      lr_(lr),
      scale_(grad_scale),
      decay_(std::pow(static_cast<double>(step), kDecayExponent)) {
  TORCH_CHECK(param_.sizes() == grad_.sizes() && state.size() == (factored_ ? 2 : 1), "Adafactor: shapes differ");
}

// A statistic moves to the mean of squares: new = old + (1 - beta) (mean - old).
double AdafactorUpdate::Mean(double sum, int64_t count) const {
  return sum * scale_ * scale_ / static_cast<double>(count) + kTiny;
}

void AdafactorUpdate::Collect(std::span<double> sums) {
  at::NoGradGuard no_grad;
  if (param_.numel() == 0) {
    std::fill(sums.begin(), sums.end(), 0.0);
    return;
  }
  if (!factored_) {
    const at::Tensor squares = grad_.view({-1}).to(at::kDouble).square_().mul_(scale_ * scale_).add_(kTiny);
    rows_.copy_(rows_.to(at::kDouble).lerp_(squares, decay_));
    return;
  }
  const int64_t rows = param_.size(0);
  if (!param_.is_cpu()) {
    const at::Tensor squares = grad_.square();
    const at::Tensor means =
        squares.sum(1, false, at::kDouble).mul_(scale_ * scale_ / static_cast<double>(columns_)).add_(kTiny);
    rows_.copy_(rows_.to(at::kDouble).lerp_(means, decay_));
    const at::Tensor all = at::cat({squares.sum(0, false, at::kDouble), rows_.sum(at::kDouble).view({1})}).to(at::kCPU);
    std::copy_n(all.const_data_ptr<double>(), all.numel(), sums.begin());
    return;
  }
  const auto* const g = grad_.const_data_ptr<float>();
  auto* const row_var = rows_.mutable_data_ptr<float>();
  std::vector<double> row_sums(static_cast<size_t>(rows));
  ForRows(rows, columns_, [&](int64_t r) {
    const double old = row_var[r], mean = Mean(SumSquares(g + r * columns_, columns_), columns_);
    row_var[r] = static_cast<float>(old + decay_ * (mean - old));
    row_sums[static_cast<size_t>(r)] = row_var[r];
  });
  // Threads divide the columns, so that each sum is in the order of the rows.
  std::fill(sums.begin(), sums.end(), 0.0);
  at::parallel_for(0, columns_, std::max<int64_t>(64, kGrain / rows), [&](int64_t lo, int64_t hi) {
    for (int64_t r = 0; r < rows; ++r) AddSquares(g + r * columns_ + lo, hi - lo, sums.data() + lo);
  });
  sums[static_cast<size_t>(columns_)] = Total(row_sums);
}

double AdafactorUpdate::Combine(std::span<const double> sums) {
  at::NoGradGuard no_grad;
  if (factored_) {
    const at::Tensor means = at::empty({columns_}, at::kDouble);
    for (int64_t c = 0; c < columns_; ++c) means.mutable_data_ptr<double>()[c] = Mean(sums[c], whole_rows_);
    columns_state_.copy_(columns_state_.to(at::kDouble).lerp_(means.to(columns_state_.device()), decay_));
  }
  if (param_.numel() == 0) return 0;
  column_factor_ = columns_state_.rsqrt();
  const double mean = factored_ ? sums[static_cast<size_t>(columns_)] / static_cast<double>(whole_rows_) : 1;
  row_factor_ = factored_ ? rows_.to(at::kDouble).div_(mean).rsqrt_().mul_(scale_)
                          : at::full({1}, scale_, rows_.options().dtype(at::kDouble));
  if (!param_.is_cpu()) {
    const at::Tensor rows = (grad_ * column_factor_).square_().sum(1, false, at::kDouble);
    return (rows * row_factor_.square()).sum().item<double>();
  }
  const auto* const g = grad_.const_data_ptr<float>();
  const auto* const column = column_factor_.const_data_ptr<float>();
  const auto* const row = row_factor_.const_data_ptr<double>();
  std::vector<double> squares(static_cast<size_t>(param_.size(0)));
  ForRows(param_.size(0), columns_, [&](int64_t r) {
    squares[static_cast<size_t>(r)] = SumSquaresOfProducts(g + r * columns_, column, columns_) * row[r] * row[r];
  });
  return Total(squares);
}

void AdafactorUpdate::Apply(double squares) {
  at::NoGradGuard no_grad;
  if (param_.numel() == 0) return;
  const double numbers = static_cast<double>(whole_rows_) * static_cast<double>(factored_ ? columns_ : 1);
  const double rate = lr_ / std::max(1.0, std::sqrt(squares / numbers) / kThreshold);
  if (!param_.is_cpu()) {
    const at::Tensor change = (grad_ * column_factor_).mul_((row_factor_ * rate).to(at::kFloat).unsqueeze(1));
    param_.mul_(keep_).sub_(change);
    return;
  }
  const auto* const g = grad_.const_data_ptr<float>();
  const auto* const column = column_factor_.const_data_ptr<float>();
  const auto* const row = row_factor_.const_data_ptr<double>();
  auto* const p = param_.mutable_data_ptr<float>();
  const auto keep = static_cast<float>(keep_);
  ForRows(param_.size(0), columns_, [&](int64_t r) {
    SubtractProducts(p + r * columns_, g + r * columns_, column, columns_, keep, static_cast<float>(row[r] * rate));
  });
}

void AdafactorStep(const AdafactorOptions& options, const at::Tensor& param, const at::Tensor& grad,
                   std::span<const at::Tensor> state, double lr, double grad_scale, int64_t step) {
  AdafactorUpdate update(options, param, grad, state, param.size(0), lr, grad_scale, step);
  std::vector<double> sums(static_cast<size_t>(update.sums()));
  update.Collect(sums);
  update.Apply(update.Combine(sums));
}

}  // namespace trainyard::optim
