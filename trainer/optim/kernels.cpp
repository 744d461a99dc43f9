#include "trainer/optim/kernels.h"

#include <cmath>

#include "trainer/optim/adamw_elements.h"

// One copy for any x86-64 and one with 8-wide vectors, chosen at start. Neither has fused multiply-add, so both give
// the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRAINYARD_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_WIDE
#endif

namespace trainyard::optim {
namespace {

template <typename T>
[[gnu::always_inline]] inline void Descend(T* __restrict p, const T* __restrict g, int64_t n, const SgdFactors& f) {
  const T lr = static_cast<T>(f.lr), decay = static_cast<T>(f.weight_decay), scale = static_cast<T>(f.grad_scale);
  for (int64_t i = 0; i < n; ++i) p[i] -= lr * (scale * g[i] + decay * p[i]);
}

template <bool kNesterov, typename T>
[[gnu::always_inline]] inline void Roll(T* __restrict p, const T* __restrict g, T* __restrict b, int64_t n,
                                        const SgdFactors& f) {
  const T lr = static_cast<T>(f.lr), decay = static_cast<T>(f.weight_decay), scale = static_cast<T>(f.grad_scale);
  const T mu = static_cast<T>(f.momentum);
  for (int64_t i = 0; i < n; ++i) {
    const T grad = scale * g[i] + decay * p[i];
    const T bi = mu * b[i] + grad;
    b[i] = bi;
    p[i] -= lr * (kNesterov ? grad + mu * bi : bi);
  }
}

template <typename T>
[[gnu::always_inline]] inline void Roll(T* p, const T* g, T* b, int64_t n, const SgdFactors& f) {
  f.nesterov ? Roll<true>(p, g, b, n, f) : Roll<false>(p, g, b, n, f);
}

// Of numbers that at(i) gives.
template <typename At>
[[gnu::always_inline]] inline double Squares(int64_t n, const At& at) {
  constexpr int kLanes = 8;
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lane[k] += static_cast<double>(at(i + k)) * static_cast<double>(at(i + k));
  }
  for (int k = 0; i < n; ++i, ++k) lane[k] += static_cast<double>(at(i)) * static_cast<double>(at(i));
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

}  // namespace

TRAINYARD_WIDE void AdamWKernel(float* p, const float* g, float* m, float* v, int64_t n, const AdamWFactors& f) {
  UpdateElements(p, g, m, v, n, f);
}

TRAINYARD_WIDE void AdamWKernel(double* p, const double* g, double* m, double* v, int64_t n, const AdamWFactors& f) {
  UpdateElements(p, g, m, v, n, f);
}

TRAINYARD_WIDE void SgdKernel(float* p, const float* g, int64_t n, const SgdFactors& f) { Descend(p, g, n, f); }
TRAINYARD_WIDE void SgdKernel(double* p, const double* g, int64_t n, const SgdFactors& f) { Descend(p, g, n, f); }

TRAINYARD_WIDE void SgdMomentumKernel(float* p, const float* g, float* b, int64_t n, const SgdFactors& f) {
  Roll(p, g, b, n, f);
}

TRAINYARD_WIDE void SgdMomentumKernel(double* p, const double* g, double* b, int64_t n, const SgdFactors& f) {
  Roll(p, g, b, n, f);
}

TRAINYARD_WIDE double SumSquares(const float* x, int64_t n) {
  return Squares(n, [x](int64_t i) { return x[i]; });
}
TRAINYARD_WIDE double SumSquares(const double* x, int64_t n) {
  return Squares(n, [x](int64_t i) { return x[i]; });
}

TRAINYARD_WIDE void AddSquares(const float* __restrict x, int64_t n, double* __restrict sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
}

TRAINYARD_WIDE double SumSquaresOfProducts(const float* x, const float* y, int64_t n) {
  return Squares(n, [x, y](int64_t i) { return x[i] * y[i]; });
}

TRAINYARD_WIDE void SubtractProducts(float* __restrict p, const float* __restrict x, const float* __restrict y,
                                     int64_t n, float keep, float factor) {
  for (int64_t i = 0; i < n; ++i) p[i] = keep * p[i] - x[i] * y[i] * factor;
}

}  // namespace trainyard::optim
