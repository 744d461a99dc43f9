// NF4 of tensors: rows as nf4.h packs them, [rows, Nf4RowBytes(row_size)] of uint8. In host memory by its kernels,
// elsewhere by ATen operations, with the same bits. Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "trainer/quant/nf4.h"

namespace trainyard::quant {

// Packs a tensor of rows (dimension 0) of float, bfloat16 or double (which is rounded to float first), at least one
// number each. Throws c10::Error when a number is not finite, since no code stands for it.
at::Tensor Nf4Quantise(const at::Tensor& rows);
// The same into `packed`, contiguous, in the same memory. False instead of an error.
[[nodiscard]] bool Nf4QuantiseInto(const at::Tensor& rows, const at::Tensor& packed);

// Unpacks contiguous `packed` into [rows, row_size] of `type`: float, bfloat16 or double.
at::Tensor Nf4Dequantise(const at::Tensor& packed, int64_t row_size, at::ScalarType type);
// The same into `rows`, contiguous and in the same memory, whose shape and type say what to make.
void Nf4DequantiseInto(const at::Tensor& packed, const at::Tensor& rows);

// The same by ATen operations in any memory, for tests to compare with.
bool Nf4QuantiseByOperations(const at::Tensor& rows, const at::Tensor& packed);
void Nf4DequantiseByOperations(const at::Tensor& packed, const at::Tensor& rows);

}  // namespace trainyard::quant
