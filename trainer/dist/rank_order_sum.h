// Sums whose bits depend on nothing but the values: rank 0 first, then 1, and so on, element by element.
// Thread-safety: pure.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::dist {

// out = parts[0] + parts[1] + ..., one part per rank, all of out's length and type. float, double and int64 add in
// their own type (int64 modulo 2^64); bfloat16 and half add in float and round once at the end. Contiguous tensors of
// one device; `out` may be one of the parts. Throws c10::Error for another type.
void RankOrderSum(const at::Tensor& out, at::TensorList parts);

}  // namespace trainyard::dist
