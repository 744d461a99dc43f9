// The arithmetic of the optimizers on plain memory. Compiled without fused multiply-add and vectorised in a way that
// rounds each element alike, so that results do not depend on where a buffer starts or ends.
// Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

namespace trainyard::optim {

// Constants of one AdamW update, in double; a kernel rounds them to its type once.
struct AdamWFactors {
  double keep;  // 1 - lr*weight_decay
  double beta1, beta2;
  double step_size;       // lr / (1 - beta1^step)
  double inv_bias2_root;  // 1 / sqrt(1 - beta2^step)
  double eps;
  double grad_scale;
};

void AdamWKernel(float* p, const float* g, float* m, float* v, int64_t n, const AdamWFactors& f);
void AdamWKernel(double* p, const double* g, double* m, double* v, int64_t n, const AdamWFactors& f);

// Constants of one SGD update.
struct SgdFactors {
  double lr, weight_decay, momentum;
  bool nesterov;
  double grad_scale;
};

void SgdKernel(float* p, const float* g, int64_t n, const SgdFactors& f);  // no momentum
void SgdKernel(double* p, const double* g, int64_t n, const SgdFactors& f);
void SgdMomentumKernel(float* p, const float* g, float* b, int64_t n, const SgdFactors& f);
void SgdMomentumKernel(double* p, const double* g, double* b, int64_t n, const SgdFactors& f);

// Sum of squares in double: eight interleaved partial sums, added pairwise. Depends on the values and n alone.
double SumSquares(const float* x, int64_t n);
double SumSquares(const double* x, int64_t n);

// What Adafactor needs of a row. Sums as those of SumSquares.
void AddSquares(const float* x, int64_t n, double* sums);                // sums[i] += x[i]^2, in double
double SumSquaresOfProducts(const float* x, const float* y, int64_t n);  // of x[i] * y[i] in float
void SubtractProducts(float* p, const float* x, const float* y, int64_t n, float keep,
                      float factor);  // p = keep * p - (x * y) * factor

}  // namespace trainyard::optim
