#include "trainer/optim/adamw.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trainer/optim/kernels.h"

namespace trainyard::optim {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread that are worth a thread

template <typename T>
void OnCpu(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
           const AdamWFactors& factors) {
  T* p = param.mutable_data_ptr<T>();
  const T* g = grad.const_data_ptr<T>();
  T* m = exp_avg.mutable_data_ptr<T>();
  T* v = exp_avg_sq.mutable_data_ptr<T>();
  at::parallel_for(0, param.numel(), kGrain,
                   [&](int64_t lo, int64_t hi) { AdamWKernel(p + lo, g + lo, m + lo, v + lo, hi - lo, factors); });
}

// Chunks are cut and added up alike whatever the number of threads.
template <typename T>
double SumOnCpu(const T* x, int64_t n) {
  std::vector<double> sums(static_cast<size_t>((n + kGrain - 1) / kGrain));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t lo, int64_t hi) {
    for (int64_t c = lo; c < hi; ++c) sums[c] = SumSquares(x + c * kGrain, std::min(kGrain, n - c * kGrain));
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

void AdamWUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const AdamWOptions& options, double lr, double grad_scale,
                 int64_t step) {
  if (param.numel() == 0) return;
  TORCH_CHECK(param.is_contiguous() && grad.is_contiguous() && exp_avg.is_contiguous() && exp_avg_sq.is_contiguous(),
              "AdamW: tensors must be contiguous");
  TORCH_CHECK(grad.numel() == param.numel() && exp_avg.numel() == param.numel() &&
                  exp_avg_sq.numel() == param.numel() && grad.scalar_type() == param.scalar_type(),
              "AdamW: sizes or types differ");
  if (!param.is_cpu()) {
    at::NoGradGuard no_grad;
    const at::Tensor steps = at::full({}, static_cast<double>(step), param.options().dtype(at::kFloat));
    at::_fused_adamw_({param}, {grad * grad_scale}, {exp_avg}, {exp_avg_sq}, {}, {steps}, lr, options.beta1,
                      options.beta2, options.weight_decay, options.eps, /*amsgrad=*/false, /*maximize=*/false);
    return;
  }
  AdamWFactors factors;
  factors.keep = 1.0 - lr * options.weight_decay;
  factors.beta1 = options.beta1;
  factors.beta2 = options.beta2;
  factors.step_size = lr / (1.0 - std::pow(options.beta1, static_cast<double>(step)));
  factors.inv_bias2_root = 1.0 / std::sqrt(1.0 - std::pow(options.beta2, static_cast<double>(step)));
  factors.eps = options.eps;
  factors.grad_scale = grad_scale;
  if (param.scalar_type() == at::kDouble) {
    OnCpu<double>(param, grad, exp_avg, exp_avg_sq, factors);
  } else {
    OnCpu<float>(param, grad, exp_avg, exp_avg_sq, factors);
  }
}

double SumSquares(const at::Tensor& x) {
  if (x.numel() == 0) return 0.0;
  if (!x.is_cpu()) return x.to(at::kDouble).square().sum().item<double>();
  TORCH_CHECK(x.is_contiguous(), "SumSquares: the tensor must be contiguous");
  return x.scalar_type() == at::kDouble ? SumOnCpu(x.const_data_ptr<double>(), x.numel())
                                        : SumOnCpu(x.const_data_ptr<float>(), x.numel());
}

double ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1.0 ? factor : 1.0;
}

}  // namespace trainyard::optim
