#include "trainer/optim/clip.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/optim/elements.h"
#include "trainer/optim/kernels.h"

namespace trainyard::optim {
namespace {

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
