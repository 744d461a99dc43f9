#include "trainer/quant/nf4_tensor.h"

#include <algorithm>
#include <atomic>

#include <ATen/Parallel.h>

namespace trainyard::quant {
namespace {

constexpr int64_t kGrain = 1 << 14;  // numbers per thread that are worth a thread
constexpr int64_t kPiece = 1 << 22;  // numbers that operations unpack at once, with some 20 bytes of theirs for each

int64_t RowSize(const at::Tensor& rows) { return rows.size(0) == 0 ? 0 : rows.numel() / rows.size(0); }

void Check(const at::Tensor& rows, const at::Tensor& packed) {
  TORCH_CHECK(packed.scalar_type() == at::kByte && packed.dim() == 2 && packed.is_contiguous(),
              "NF4: packed rows are a contiguous [rows, bytes] of uint8");
  TORCH_CHECK(packed.size(0) == rows.size(0) && packed.device() == rows.device(), "NF4: rows or memory differ");
  TORCH_CHECK(rows.numel() == 0 || packed.size(1) == Nf4RowBytes(RowSize(rows)), "NF4: ", packed.size(1),
              " bytes per row are not those of ", RowSize(rows), " numbers");
}

// bfloat16 as the kernels see it.
const uint16_t* Numbers(const at::BFloat16* x) { return reinterpret_cast<const uint16_t*>(x); }
uint16_t* Numbers(at::BFloat16* x) { return reinterpret_cast<uint16_t*>(x); }
const float* Numbers(const float* x) { return x; }
float* Numbers(float* x) { return x; }

template <typename T>
bool QuantiseOnCpu(const at::Tensor& rows, const at::Tensor& packed) {
  const auto* from = Numbers(rows.const_data_ptr<T>());
  auto* to = packed.mutable_data_ptr<uint8_t>();
  const int64_t n = RowSize(rows), bytes = packed.size(1);
  std::atomic<bool> finite{true};
  at::parallel_for(0, rows.size(0), std::max<int64_t>(1, kGrain / n), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) {
      if (!Nf4QuantiseRow(from + r * n, n, to + r * bytes)) finite = false;
    }
  });
  return finite;
}

template <typename T>
void DequantiseOnCpu(const at::Tensor& packed, const at::Tensor& rows) {
  const auto* from = packed.const_data_ptr<uint8_t>();
  auto* to = Numbers(rows.mutable_data_ptr<T>());
  const int64_t n = RowSize(rows), bytes = packed.size(1);
  at::parallel_for(0, rows.size(0), std::max<int64_t>(1, kGrain / n), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) Nf4DequantiseRow(from + r * bytes, n, to + r * n);
  });
}

// The numbers of each row in its blocks, [rows, blocks, 64], with zeros behind the last.
at::Tensor Blocks(const at::Tensor& rows, int64_t n) {
  return at::constant_pad_nd(rows.reshape({rows.size(0), n}), {0, Nf4Blocks(n) * kNf4Block - n})
      .view({rows.size(0), Nf4Blocks(n), kNf4Block});
}

// [rows, blocks] of scales from offset and step, [rows, 1] each. Two operations: nothing is fused.
at::Tensor Scales(const at::Tensor& quantised, const at::Tensor& offset, const at::Tensor& step) {
  return offset + step * quantised.to(at::kFloat);
}

at::Tensor Code(const at::Tensor& like) {
  return at::from_blob(const_cast<float*>(kNf4Code.data()), {16}, at::kFloat).to(like.device());
}

void DequantisePiece(const at::Tensor& packed, const at::Tensor& rows) {
  const int64_t count = rows.size(0), n = RowSize(rows), bytes = (n + 1) / 2;
  const at::Tensor ends = packed.narrow(1, packed.size(1) - 8, 8).contiguous().view(at::kFloat);
  const at::Tensor scales =
      Scales(packed.narrow(1, bytes, Nf4Blocks(n)), ends.narrow(1, 0, 1), ends.narrow(1, 1, 1)).unsqueeze(2);
  const at::Tensor codes = packed.narrow(1, 0, bytes);
  const at::Tensor numbers = at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, 2);
  const at::Tensor values = Code(packed).index_select(0, numbers.reshape({-1}).to(at::kInt));
  const at::Tensor blocks = Blocks(values.view({count, 2 * bytes}).narrow(1, 0, n), n) * scales;
  rows.copy_(blocks.view({count, -1}).narrow(1, 0, n).reshape(rows.sizes()));
}

}  // namespace

bool Nf4QuantiseByOperations(const at::Tensor& rows, const at::Tensor& packed) {
  at::NoGradGuard no_grad;
  Check(rows, packed);
  if (rows.numel() == 0) return true;
  const int64_t n = RowSize(rows);
  const at::Tensor blocks = Blocks(rows.to(at::kFloat), n);
  if (!blocks.isfinite().all().item<bool>()) return false;
  const at::Tensor largest = blocks.abs().amax(2);
  const at::Tensor offset = largest.amin(1, true);
  const at::Tensor step = (largest.amax(1, true) - offset) / at::full({}, 255.0F, offset.options());
  const at::Tensor q = at::where(step > 0, ((largest - offset) / step).round(), at::zeros_like(largest)).clamp_max(255);
  const at::Tensor scales = Scales(q, offset, step).unsqueeze(2);
  const at::Tensor values = at::where(scales > 0, blocks / scales, at::zeros_like(blocks)).view({rows.size(0), -1});
  const at::Tensor code = Code(rows).to(at::kDouble);
  const at::Tensor midpoints = ((code.narrow(0, 0, 15) + code.narrow(0, 1, 15)) / 2).to(at::kFloat);
  // Of equal ones bucketize takes the left: as many are below as the value is above.
  at::Tensor codes = at::bucketize(values.contiguous(), midpoints).to(at::kByte).narrow(1, 0, n);
  if (n % 2 != 0) codes = at::constant_pad_nd(codes, {0, 1});
  const at::Tensor pairs = codes.reshape({rows.size(0), -1, 2});
  const at::Tensor ends = at::cat({offset, step}, 1).contiguous().view(at::kByte);
  packed.copy_(at::cat({pairs.select(2, 0) + pairs.select(2, 1) * 16, q.to(at::kByte), ends}, 1));
  return true;
}

void Nf4DequantiseByOperations(const at::Tensor& packed, const at::Tensor& rows) {
  at::NoGradGuard no_grad;
  Check(rows, packed);
  if (rows.numel() == 0) return;
  const int64_t piece = std::max<int64_t>(1, kPiece / RowSize(rows));
  for (int64_t lo = 0; lo < rows.size(0); lo += piece) {
    const int64_t count = std::min(piece, rows.size(0) - lo);
    DequantisePiece(packed.narrow(0, lo, count), rows.narrow(0, lo, count));
  }
}

bool Nf4QuantiseInto(const at::Tensor& rows, const at::Tensor& packed) {
  Check(rows, packed);
  if (rows.numel() == 0) return true;
  if (!rows.is_cpu()) return Nf4QuantiseByOperations(rows, packed);
  const at::Tensor x = rows.contiguous();
  if (x.scalar_type() == at::kBFloat16) return QuantiseOnCpu<at::BFloat16>(x, packed);
  return QuantiseOnCpu<float>(x.to(at::kFloat), packed);
}

at::Tensor Nf4Quantise(const at::Tensor& rows) {
  TORCH_CHECK(rows.dim() >= 1, "NF4: a tensor of rows is needed");
  const int64_t bytes = Nf4RowBytes(c10::multiply_integers(rows.sizes().slice(1)));
  const at::Tensor packed = at::empty({rows.size(0), bytes}, rows.options().dtype(at::kByte));
  TORCH_CHECK(Nf4QuantiseInto(rows, packed), "NF4: a number that is not finite has no code");
  return packed;
}

void Nf4DequantiseInto(const at::Tensor& packed, const at::Tensor& rows) {
  Check(rows, packed);
  TORCH_CHECK(rows.is_contiguous(), "NF4: unpacked rows are contiguous");
  if (rows.numel() == 0) return;
  if (!rows.is_cpu()) return Nf4DequantiseByOperations(packed, rows);
  switch (rows.scalar_type()) {
    case at::kBFloat16:
      return DequantiseOnCpu<at::BFloat16>(packed, rows);
    case at::kFloat:
      return DequantiseOnCpu<float>(packed, rows);
    default:
      rows.copy_(Nf4Dequantise(packed, RowSize(rows), at::kFloat).view(rows.sizes()));
  }
}

at::Tensor Nf4Dequantise(const at::Tensor& packed, int64_t row_size, at::ScalarType type) {
  at::Tensor rows = at::empty({packed.size(0), row_size}, packed.options().dtype(type));
  Nf4DequantiseInto(packed, rows);
  return rows;
}

}  // namespace trainyard::quant
