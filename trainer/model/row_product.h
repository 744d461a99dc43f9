// Products of one row with a matrix: what making a token consists of. Such a product reads every number of the matrix
// once, so that memory is what it takes; matrix products of libraries reach a fraction of that with one row, least of
// all in BF16. Thread-safety: functions of their arguments.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::model {

// x W^T + b, as at::linear. x: [n, in], matrix: [out, in], bias: [out] or undefined. One row in host memory, in fp32 or
// BF16, without a graph, is added up in fp32 lanes of our own; anything else is at::linear itself.
at::Tensor LinearProduct(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias = {});

// The same with the matrix in NF4 (quant/nf4.h), packed: [out, bytes] of uint8. One row is multiplied with one unpacked
// row of the matrix after another, which never leave the processor's cache; for anything else the matrix is unpacked.
// Same bits as LinearProduct with the unpacked matrix.
at::Tensor PackedLinearProduct(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& bias = {});

// b + x M, as at::addmm. matrix: [in, out]. The same.
at::Tensor AffineProduct(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& matrix);

}  // namespace trainyard::model
