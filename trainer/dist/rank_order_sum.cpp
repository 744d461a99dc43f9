#include "trainer/dist/rank_order_sum.h"

#include <algorithm>
#include <cstdint>

namespace trainyard::dist {
namespace {

// Elements summed at a time: the running sums stay in the first-level cache while all ranks' parts stream by once.
constexpr int64_t kBlock = 2048;

template <typename T, typename Acc>
void Sum(const at::Tensor& out, at::TensorList parts) {
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t n = out.numel();
  Acc sum[kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t count = std::min(kBlock, n - start);
    const T* const first = static_cast<const T*>(parts[0].const_data_ptr()) + start;
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = static_cast<Acc>(first[i]);
    }
    for (size_t r = 1; r < parts.size(); ++r) {
      const T* const part = static_cast<const T*>(parts[r].const_data_ptr()) + start;
      for (int64_t i = 0; i < count; ++i) {
        sum[i] += static_cast<Acc>(part[i]);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      to[start + i] = static_cast<T>(sum[i]);
    }
  }
}

// On a GPU, where one operation per rank is as good as any.
void SumOnDevice(const at::Tensor& out, at::TensorList parts) {
  const bool half = out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf;
  at::Tensor sum = half ? parts[0].to(at::kFloat) : parts[0].clone();  // `out` may be one of the parts
  for (size_t r = 1; r < parts.size(); ++r) sum.add_(parts[r]);
  out.copy_(sum);
}

}  // namespace

void RankOrderSum(const at::Tensor& out, at::TensorList parts) {
  if (!out.is_cpu()) {
    return SumOnDevice(out, parts);
  }
  switch (out.scalar_type()) {
    case at::kFloat:
      return Sum<float, float>(out, parts);
    case at::kDouble:
      return Sum<double, double>(out, parts);
    case at::kBFloat16:
      return Sum<at::BFloat16, float>(out, parts);
    case at::kHalf:
      return Sum<at::Half, float>(out, parts);
    case at::kLong:
      // Unsigned, since overflow is meant to wrap.
      return Sum<uint64_t, uint64_t>(out, parts);
    default:
      TORCH_CHECK(false, "no sum over ranks for type ", out.scalar_type());
  }
}

}  // namespace trainyard::dist
