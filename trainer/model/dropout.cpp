#include "trainer/model/dropout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "trainer/engine/init.h"
#include "trainer/model/fused.h"

namespace trainyard::model {
namespace {

constexpr int64_t kGrain = 1 << 14;  // numbers per thread that are worth a thread

uint32_t Threshold(double rate) { return static_cast<uint32_t>(std::lround(std::ldexp(rate, 24))); }

// Of each row the two keys of its columns: one Philox block.
fused::DropKeys KeysOf(const Dropout& d, int64_t row) {
  const auto sequence = static_cast<uint32_t>(d.place.first_sequence + row / d.length);
  const auto step = static_cast<uint64_t>(d.place.step);
  const auto random = engine::Philox(
      {sequence, static_cast<uint32_t>(row % d.length), static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
      {static_cast<uint32_t>(d.key), static_cast<uint32_t>(d.key >> 32)});
  return {random[0], random[1]};
}

// T: an unsigned integer as wide as the numbers, which are moved and not computed with.
template <typename T>
at::Tensor DropOnCpu(const at::Tensor& x, const Dropout& d) {
  const int64_t width = x.size(1);
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty(from.sizes(), from.options());
  const auto* in = static_cast<const T*>(from.const_data_ptr());
  auto* out = static_cast<T*>(y.mutable_data_ptr());
  at::parallel_for(0, x.size(0), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)),
                   [&](int64_t lo, int64_t hi) {
                     for (int64_t i = lo; i < hi; ++i) {
                       fused::Drop(in + i * width, width, KeysOf(d, i), Threshold(d.rate), out + i * width);
                     }
                   });
  return y;
}

// Shifts of signed numbers bring their sign along: it is masked out.
at::Tensor ShiftRight(const at::Tensor& x, int bits) {
  return x.bitwise_right_shift(bits).bitwise_and_(static_cast<int64_t>(0xffffffffU >> bits));
}
int64_t Signed(uint32_t x) { return static_cast<int32_t>(x); }

}  // namespace

at::Tensor DropByOperations(const at::Tensor& x, const Dropout& d) {
  const int64_t n = x.size(0), width = x.size(1);
  at::Tensor keys = at::empty({2, n, 1}, at::kInt), columns = at::empty({1, width}, at::kInt);
  auto* key = reinterpret_cast<uint32_t*>(keys.mutable_data_ptr<int32_t>());
  for (int64_t i = 0; i < n; ++i) {
    const fused::DropKeys of_row = KeysOf(d, i);
    key[i] = of_row.add, key[n + i] = of_row.mix;
  }
  auto* column = reinterpret_cast<uint32_t*>(columns.mutable_data_ptr<int32_t>());
  for (int64_t j = 0; j < width; ++j) column[j] = static_cast<uint32_t>(j) * fused::kDropColumn;
  keys = keys.to(x.device());
  at::Tensor h = columns.to(x.device()) + keys[0];
  h.bitwise_xor_(ShiftRight(h, 16)).mul_(Signed(fused::kDropFirst)).bitwise_xor_(keys[1]);
  h.bitwise_xor_(ShiftRight(h, 15)).mul_(Signed(fused::kDropSecond));
  h.bitwise_xor_(ShiftRight(h, 16));
  return x.masked_fill(ShiftRight(h, 8).lt(static_cast<int64_t>(Threshold(d.rate))), 0);
}

at::Tensor Drop(const at::Tensor& x, const Dropout& d) {
  if (d.rate <= 0) return x;
  if (!x.is_cpu()) return DropByOperations(x, d);
  switch (x.element_size()) {
    case 2:
      return DropOnCpu<uint16_t>(x, d);
    case 4:
      return DropOnCpu<uint32_t>(x, d);
    default:
      return DropOnCpu<uint64_t>(x, d);
  }
}

}  // namespace trainyard::model
