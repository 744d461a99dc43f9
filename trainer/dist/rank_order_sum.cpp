#include "trainer/dist/rank_order_sum.h"

#include <algorithm>
#include <cstdint>

namespace trainyard::dist {
namespace {

// Elements summed at a time: the running sums stay in the first-level cache while all ranks' parts stream by once.
constexpr int64_t kBlock = 2048;

template <typename T, typename Acc>
void Sum(T* out, const T* parts, int64_t n, int world) {
  Acc sum[kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t count = std::min(kBlock, n - start);
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = static_cast<Acc>(parts[start + i]);
    }
    for (int r = 1; r < world; ++r) {
      const T* part = parts + r * n + start;
      for (int64_t i = 0; i < count; ++i) {
        sum[i] += static_cast<Acc>(part[i]);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      out[start + i] = static_cast<T>(sum[i]);
    }
  }
}

template <typename T, typename Acc>
void SumAs(const at::Tensor& out, const at::Tensor& parts, int world) {
  Sum<T, Acc>(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(parts.const_data_ptr()), out.numel(),
              world);
}

}  // namespace

void RankOrderSum(const at::Tensor& out, const at::Tensor& parts, int world) {
  switch (out.scalar_type()) {
    case at::kFloat:
      return SumAs<float, float>(out, parts, world);
    case at::kDouble:
      return SumAs<double, double>(out, parts, world);
    case at::kBFloat16:
      return SumAs<at::BFloat16, float>(out, parts, world);
    case at::kHalf:
      return SumAs<at::Half, float>(out, parts, world);
    case at::kLong:
      // Unsigned, since overflow is meant to wrap.
      return SumAs<uint64_t, uint64_t>(out, parts, world);
    default:
      TORCH_CHECK(false, "no sum over ranks for type ", out.scalar_type());
  }
}

}  // namespace trainyard::dist
