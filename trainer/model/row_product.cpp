#include "trainer/model/row_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/model/fused.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::model {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread that are worth a thread

bool OneRow(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return x.dim() == 2 && x.size(0) == 1 && x.is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         !at::GradMode::is_enabled();
}
bool OneRow(const at::Tensor& x, const at::Tensor& matrix) {
  return OneRow(x) && matrix.scalar_type() == x.scalar_type() && matrix.is_contiguous();
}

// Of the elements' type, whose bits the kernels read.
const uint16_t* Bits(const at::Tensor& t) {
  return reinterpret_cast<const uint16_t*>(t.const_data_ptr<at::BFloat16>());
}

// fn(first, count) over pieces of `n` outputs with `each` elements of the matrix.
template <typename Fn>
void OverOutputs(int64_t n, int64_t each, const Fn& fn) {
  at::parallel_for(0, n, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, each)),
                   [&](int64_t lo, int64_t hi) { fn(lo, hi - lo); });
}

// y: [1, out] fp32, with the bias added, in the type of `like`.
at::Tensor Finished(at::Tensor y, const at::Tensor& bias, const at::Tensor& like) {
  if (bias.defined()) y.add_(bias);
  return y.to(like.scalar_type());
}

}  // namespace

at::Tensor LinearProduct(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias) {
  if (!OneRow(x, matrix)) return bias.defined() ? at::linear(x, matrix, bias) : at::linear(x, matrix);
  const int64_t out = matrix.size(0), in = matrix.size(1);
  const at::Tensor row = x.to(at::kFloat).contiguous();
  at::Tensor y = at::empty({1, out}, row.options());
  const float* from = row.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  OverOutputs(out, in, [&](int64_t first, int64_t count) {
    if (matrix.scalar_type() == at::kFloat) {
      fused::RowDots(matrix.const_data_ptr<float>() + first * in, from, count, in, to + first);
    } else {
      fused::RowDotsBf16(Bits(matrix) + first * in, from, count, in, to + first);
    }
  });
  return Finished(std::move(y), bias, x);
}

at::Tensor PackedLinearProduct(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& bias) {
  const int64_t out = packed.size(0), bytes = packed.size(1), in = x.size(-1);
  if (!OneRow(x)) return LinearProduct(x, quant::Nf4Dequantise(packed, in, x.scalar_type()), bias);
  const at::Tensor row = x.to(at::kFloat).contiguous();
  at::Tensor y = at::empty({1, out}, row.options());
  const float* from = row.const_data_ptr<float>();
  const uint8_t* rows = packed.const_data_ptr<uint8_t>();
  float* to = y.mutable_data_ptr<float>();
  OverOutputs(out, in, [&](int64_t first, int64_t count) {
    std::vector<float> numbers(static_cast<size_t>(in));
    std::vector<uint16_t> bits(static_cast<size_t>(in));
    for (int64_t i = first; i < first + count; ++i) {
      if (x.scalar_type() == at::kFloat) {
        quant::Nf4DequantiseRow(rows + i * bytes, in, numbers.data());
        fused::RowDots(numbers.data(), from, 1, in, to + i);
      } else {
        quant::Nf4DequantiseRow(rows + i * bytes, in, bits.data());
        fused::RowDotsBf16(bits.data(), from, 1, in, to + i);
      }
    }
  });
  return Finished(std::move(y), bias, x);
}

at::Tensor AffineProduct(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& matrix) {
  if (!OneRow(x, matrix)) return at::addmm(bias, x, matrix);
  const int64_t in = matrix.size(0), out = matrix.size(1);
  const at::Tensor row = x.to(at::kFloat).contiguous();
  at::Tensor y = at::zeros({1, out}, row.options());
  const float* from = row.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  OverOutputs(out, in, [&](int64_t first, int64_t count) {
    if (matrix.scalar_type() == at::kFloat) {
      fused::ColumnSums(matrix.const_data_ptr<float>() + first, out, from, count, in, to + first);
    } else {
      fused::ColumnSumsBf16(Bits(matrix) + first, out, from, count, in, to + first);
    }
  });
  return Finished(std::move(y), bias, x);
}

}  // namespace trainyard::model
