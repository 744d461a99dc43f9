#include "trainer/engine/row_squares.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "trainer/optim/kernels.h"

namespace trainyard::engine {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread that are worth a thread
constexpr int64_t kBlock = 1 << 24;  // elements whose doubles are alive at once

template <typename T>
void Fill(const at::Tensor& rows, std::vector<double>& sums) {
  const T* data = rows.const_data_ptr<T>();
  const int64_t size = rows.numel() / rows.size(0);
  at::parallel_for(0, rows.size(0), std::max<int64_t>(1, kGrain / size), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) sums[r] = optim::SumSquares(data + r * size, size);
  });
}

}  // namespace

std::vector<double> RowSquares(const at::Tensor& rows) {
  if (rows.numel() == 0) return {};
  if (!rows.is_cpu()) return RowSquaresByHalves(rows);
  TORCH_CHECK(rows.is_contiguous(), "RowSquares: the tensor must be contiguous");
  std::vector<double> sums(static_cast<size_t>(rows.size(0)));
  rows.scalar_type() == at::kDouble ? Fill<double>(rows, sums) : Fill<float>(rows, sums);
  return sums;
}

std::vector<double> RowSquaresByHalves(const at::Tensor& rows) {
  std::vector<double> sums;
  if (rows.numel() == 0) return sums;
  const at::Tensor flat = rows.reshape({rows.size(0), -1});
  const int64_t block = std::max<int64_t>(1, kBlock / flat.size(1));
  for (int64_t lo = 0; lo < flat.size(0); lo += block) {
    at::Tensor x = flat.narrow(0, lo, std::min(block, flat.size(0) - lo)).to(at::kDouble).square();
    while (x.size(1) > 1) {
      const int64_t half = (x.size(1) + 1) / 2;
      x.narrow(1, 0, x.size(1) - half).add_(x.narrow(1, half, x.size(1) - half));
      x = x.narrow(1, 0, half);
    }
    const at::Tensor host = x.to(at::kCPU).contiguous();
    const double* value = host.const_data_ptr<double>();
    sums.insert(sums.end(), value, value + host.numel());
  }
  return sums;
}

}  // namespace trainyard::engine
