#include "trainer/optim/sgd.h"

#include "trainer/optim/elements.h"
#include "trainer/optim/kernels.h"

namespace trainyard::optim {
namespace {

template <typename T>
void OnCpu(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& buffer, const SgdFactors& factors) {
  T* p = param.mutable_data_ptr<T>();
  const T* g = grad.const_data_ptr<T>();
  T* b = buffer.defined() ? buffer.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, param.numel(), kGrain, [&](int64_t lo, int64_t hi) {
    if (b == nullptr) {
      SgdKernel(p + lo, g + lo, hi - lo, factors);
    } else {
      SgdMomentumKernel(p + lo, g + lo, b + lo, hi - lo, factors);
    }
  });
}

}  // namespace

void SgdUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& buffer, const SgdOptions& options,
               double lr, double grad_scale) {
  TORCH_CHECK(buffer.defined() == (options.momentum != 0), "SGD: a buffer comes with momentum, and only then");
  CheckAlike("SGD", param, {grad, buffer.defined() ? buffer : grad});
  if (param.numel() == 0) return;
  if (!param.is_cpu()) {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> buffers;
    if (buffer.defined()) buffers.push_back(buffer);
    at::_fused_sgd_({param}, {grad * grad_scale}, buffers, options.weight_decay, options.momentum, lr,
                    /*dampening=*/0.0, options.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    return;
  }
  const SgdFactors factors{lr, options.weight_decay, options.momentum, options.nesterov, grad_scale};
  if (param.scalar_type() == at::kDouble) {
    OnCpu<double>(param, grad, buffer, factors);
  } else {
    OnCpu<float>(param, grad, buffer, factors);
  }
}

}  // namespace trainyard::optim
