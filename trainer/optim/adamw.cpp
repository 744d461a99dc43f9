#include "trainer/optim/adamw.h"

#include <cmath>

#include "trainer/optim/elements.h"
#include "trainer/optim/kernels.h"

namespace trainyard::optim {
namespace {

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

}  // namespace

AdamWFactors FactorsOf(const AdamWOptions& options, double lr, double grad_scale, int64_t step) {
  AdamWFactors factors;
  factors.keep = 1.0 - lr * options.weight_decay;
  factors.beta1 = options.beta1;
  factors.beta2 = options.beta2;
  factors.step_size = lr / (1.0 - std::pow(options.beta1, static_cast<double>(step)));
  factors.inv_bias2_root = 1.0 / std::sqrt(1.0 - std::pow(options.beta2, static_cast<double>(step)));
  factors.eps = options.eps;
  factors.grad_scale = grad_scale;
  return factors;
}

void AdamWUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const AdamWOptions& options, double lr, double grad_scale,
                 int64_t step) {
  CheckAlike("AdamW", param, {grad, exp_avg, exp_avg_sq});
  if (param.numel() == 0) return;
  if (!param.is_cpu()) {
    at::NoGradGuard no_grad;
    const at::Tensor steps = at::full({}, static_cast<double>(step), param.options().dtype(at::kFloat));
    at::_fused_adamw_({param}, {grad * grad_scale}, {exp_avg}, {exp_avg_sq}, {}, {steps}, lr, options.beta1,
                      options.beta2, options.weight_decay, options.eps, /*amsgrad=*/false, /*maximize=*/false);
    return;
  }
  const AdamWFactors factors = FactorsOf(options, lr, grad_scale, step);
  if (param.scalar_type() == at::kDouble) {
    OnCpu<double>(param, grad, exp_avg, exp_avg_sq, factors);
  } else {
    OnCpu<float>(param, grad, exp_avg, exp_avg_sq, factors);
  }
}

}  // namespace trainyard::optim
