// AdamW on plain memory, inlined into the kernels of kernels.cpp and eight_bit.cpp, which are compiled without fused
// multiply-add. Private to the room. Thread-safety: pure function.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/optim/kernels.h"

namespace trainyard::optim {

// n elements; formula of adamw.h.
template <typename T>
[[gnu::always_inline]] inline void UpdateElements(T* __restrict p, const T* __restrict g, T* __restrict m,
                                                  T* __restrict v, int64_t n, const AdamWFactors& f) {
  const T keep = static_cast<T>(f.keep), b1 = static_cast<T>(f.beta1), b2 = static_cast<T>(f.beta2);
  const T c1 = static_cast<T>(1.0 - f.beta1), c2 = static_cast<T>(1.0 - f.beta2);
  const T step = static_cast<T>(f.step_size), root = static_cast<T>(f.inv_bias2_root);
  const T eps = static_cast<T>(f.eps), scale = static_cast<T>(f.grad_scale);
  for (int64_t i = 0; i < n; ++i) {
    const T grad = scale * g[i];
    const T mi = b1 * m[i] + c1 * grad;
    const T vi = b2 * v[i] + c2 * grad * grad;
    m[i] = mi;
    v[i] = vi;
    p[i] = keep * p[i] - step * mi / (std::sqrt(vi) * root + eps);
  }
}

}  // namespace trainyard::optim
