#include "trainer/optim/adamw8bit.h"

#include <algorithm>

#include "trainer/optim/eight_bit.h"
#include "trainer/optim/elements.h"

namespace trainyard::optim {
namespace {

int64_t RowSize(const at::Tensor& t) { return t.numel() / t.size(0); }

void Check(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) {
  CheckAlike("AdamW8bit", param, {grad});
  TORCH_CHECK(param.scalar_type() == at::kFloat, "AdamW8bit: parameters must be float");
  for (const at::Tensor& moment : {exp_avg, exp_avg_sq}) {
    TORCH_CHECK(moment.scalar_type() == at::kByte && moment.is_contiguous() && moment.dim() == 2 &&
                    moment.size(0) == param.size(0) && moment.size(1) == MomentRowBytes(RowSize(param)),
                "AdamW8bit: a moment is not packed rows of the parameter");
  }
}

// Numbers in their blocks, [rows, blocks, 256], with zeros behind the last.
at::Tensor Blocks(const at::Tensor& rows, int64_t blocks) {
  return at::constant_pad_nd(rows, {0, blocks * kMomentBlock - rows.size(1)})
      .view({rows.size(0), blocks, kMomentBlock});
}

at::Tensor Table(const std::array<float, 256>& map, const at::Device& device) {
  return at::from_blob(const_cast<float*>(map.data()), {256}, at::kFloat).to(device);
}

at::Tensor Unpack(const at::Tensor& moment, const at::Tensor& map, int64_t n) {
  const at::Tensor scales = moment.narrow(1, n, moment.size(1) - n).contiguous().view(at::kFloat);
  const at::Tensor values = map.index_select(0, moment.narrow(1, 0, n).reshape({-1}).to(at::kInt));
  return (Blocks(values.view({moment.size(0), n}), scales.size(1)) * scales.unsqueeze(2))
      .view({moment.size(0), -1})
      .narrow(1, 0, n);
}

// `levels`: the values of the map that are not negative. Codes are found by size, so that both signs are alike.
void Pack(const at::Tensor& values, const at::Tensor& levels, bool has_sign, const at::Tensor& moment) {
  const int64_t n = values.size(1), zero = has_sign ? 127 : 0;
  const at::Tensor blocks = Blocks(values, (moment.size(1) - n) / static_cast<int64_t>(sizeof(float)));
  const at::Tensor scales = blocks.abs().amax(2);
  const at::Tensor size =
      at::where(scales.unsqueeze(2) > 0, blocks.abs() / scales.unsqueeze(2), at::zeros_like(blocks));
  const at::Tensor low = levels.narrow(0, 0, levels.size(0) - 1).to(at::kDouble);
  const at::Tensor midpoints = ((low + levels.narrow(0, 1, levels.size(0) - 1).to(at::kDouble)) / 2).to(at::kFloat);
  at::Tensor codes = at::bucketize(size.contiguous(), midpoints);
  if (has_sign) {
    codes = at::where(blocks < 0, zero - codes.clamp_max(zero), zero + codes);
  } else {
    codes = at::max(codes, (blocks > 0).to(codes.scalar_type()));
  }
  moment.narrow(1, 0, n).copy_(codes.view({values.size(0), -1}).narrow(1, 0, n));
  moment.narrow(1, n, moment.size(1) - n).copy_(scales.contiguous().view(at::kByte));
}

}  // namespace

void AdamW8bitByOperations(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                           const at::Tensor& exp_avg_sq, const AdamW8bitOptions& options, double lr, double grad_scale,
                           int64_t step) {
  if (param.numel() == 0) return;
  Check(param, grad, exp_avg, exp_avg_sq);
  at::NoGradGuard no_grad;
  const AdamWFactors f = FactorsOf(options, lr, grad_scale, step);
  const auto number = [](double x) { return static_cast<double>(static_cast<float>(x)); };  // as the kernel has it
  const int64_t n = RowSize(param);
  const at::Tensor signed_map = Table(SignedMap(), param.device()), unsigned_map = Table(UnsignedMap(), param.device());
  const at::Tensor p = param.view({param.size(0), n}), g = grad.reshape(p.sizes()) * number(f.grad_scale);
  const at::Tensor m = Unpack(exp_avg, signed_map, n) * number(f.beta1) + g * number(1.0 - f.beta1);
  const at::Tensor v = Unpack(exp_avg_sq, unsigned_map, n) * number(f.beta2) + g * number(1.0 - f.beta2) * g;
  const at::Tensor change = m * number(f.step_size) / (v.sqrt() * number(f.inv_bias2_root) + number(f.eps));
  p.copy_(p * number(f.keep) - change);
  Pack(m, signed_map.narrow(0, 127, 129), true, exp_avg);
  Pack(v, unsigned_map, false, exp_avg_sq);
}

void AdamW8bitUpdate(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                     const at::Tensor& exp_avg_sq, const AdamW8bitOptions& options, double lr, double grad_scale,
                     int64_t step) {
  if (param.numel() == 0) return;
  Check(param, grad, exp_avg, exp_avg_sq);
  if (!param.is_cpu()) return AdamW8bitByOperations(param, grad, exp_avg, exp_avg_sq, options, lr, grad_scale, step);
  const AdamWFactors factors = FactorsOf(options, lr, grad_scale, step);
  auto* const p = param.mutable_data_ptr<float>();
  const auto* const g = grad.const_data_ptr<float>();
  auto* const m = exp_avg.mutable_data_ptr<uint8_t>();
  auto* const v = exp_avg_sq.mutable_data_ptr<uint8_t>();
  const int64_t n = RowSize(param), bytes = exp_avg.size(1);
  at::parallel_for(0, param.size(0), std::max<int64_t>(1, kGrain / n), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) AdamW8bitRow(p + r * n, g + r * n, m + r * bytes, v + r * bytes, n, factors);
  });
}

}  // namespace trainyard::optim
