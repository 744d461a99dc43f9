#include "trainer/engine/gradient_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/Parallel.h>

namespace trainyard::engine {
namespace {

constexpr int64_t kGrain = 1 << 15;           // elements per thread that are worth a thread
constexpr int64_t kOperationBlock = 1 << 24;  // elements whose doubles are alive at once on other devices

template <typename T>
uint32_t QuantiseBlocks(const T* x, int64_t n, int shift, bool add, int64_t* sums) {
  std::vector<uint32_t> largest(static_cast<size_t>((n + kGrain - 1) / kGrain), 0);
  at::parallel_for(0, static_cast<int64_t>(largest.size()), 1, [&](int64_t lo, int64_t hi) {
    for (int64_t b = lo; b < hi; ++b) {
      const int64_t first = b * kGrain;
      largest[b] = Quantise(x + first, std::min(kGrain, n - first), shift, add, sums + first);
    }
  });
  return largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
}

std::string PowerOfTwo(int exponent) { return "2^" + std::to_string(exponent); }

}  // namespace

uint32_t QuantiseOnCpu(const at::Tensor& x, int shift, bool add, const at::Tensor& sums) {
  TORCH_CHECK(sums.is_contiguous() && sums.scalar_type() == at::kLong && sums.numel() == x.numel(),
              "fixed-point sums must be contiguous int64 of as many elements");
  const at::Tensor flat = x.contiguous();
  auto* to = sums.mutable_data_ptr<int64_t>();
  if (flat.scalar_type() == at::kBFloat16) {
    return QuantiseBlocks(static_cast<const uint16_t*>(flat.const_data_ptr()), flat.numel(), shift, add, to);
  }
  return QuantiseBlocks(flat.const_data_ptr<float>(), flat.numel(), shift, add, to);
}

at::Tensor QuantiseByOperations(const at::Tensor& x, int shift, bool add, const at::Tensor& sums) {
  const at::Tensor from = x.contiguous().view({-1}), to = sums.view({-1});
  at::Tensor largest = at::zeros({}, x.options().dtype(at::kFloat));
  for (int64_t lo = 0; lo < from.numel(); lo += kOperationBlock) {
    const int64_t count = std::min(kOperationBlock, from.numel() - lo);
    const at::Tensor part = from.narrow(0, lo, count);
    largest = at::maximum(largest, part.abs().amax().to(at::kFloat));  // NaN wins
    const at::Tensor whole = part.to(at::kDouble).mul_(std::ldexp(1.0, shift)).round_().to(at::kLong);
    const at::Tensor target = to.narrow(0, lo, count);
    add ? target.add_(whole) : target.copy_(whole);
  }
  return largest;
}

GradientSums::GradientSums(std::vector<std::string> names, int64_t addends)
    : names_(std::move(names)),
      addend_bits_(AddendBits(addends)),
      shifts_(names_.size(), FirstShift(addend_bits_)),
      settled_(shifts_),
      not_finite_(names_.size(), false),
      largest_(names_.size(), 0),
      remote_(names_.size()) {}

void GradientSums::BeginStep() {
  std::fill(largest_.begin(), largest_.end(), 0U);
  std::fill(remote_.begin(), remote_.end(), at::Tensor());
}

void GradientSums::Add(int p, const at::Tensor& gradient, bool add, const at::Tensor& sums) {
  if (gradient.is_cpu()) {
    largest_[p] = std::max(largest_[p], QuantiseOnCpu(gradient, shifts_[p], add, sums));
    return;
  }
  const at::Tensor largest = QuantiseByOperations(gradient, shifts_[p], add, sums);
  remote_[p] = remote_[p].defined() ? at::maximum(remote_[p], largest) : largest;
}

// Of all ranks together.
std::vector<int> GradientSums::Magnitudes(dist::Comm& comm, const at::Device& device) const {
  const auto count = static_cast<int64_t>(names_.size());
  at::Tensor mine = at::empty({count}, at::kLong);
  for (int64_t p = 0; p < count; ++p) {
    const uint32_t bits =
        remote_[p].defined() ? std::bit_cast<uint32_t>(remote_[p].item<float>()) & 0x7fffffffU : largest_[p];
    mine.mutable_data_ptr<int64_t>()[p] = MagnitudeOf(bits);
  }
  const at::Tensor all = at::empty({comm.size(), count}, at::dtype(at::kLong).device(device));
  comm.AllGather(all, mine.to(device), {.label = "gradient magnitudes"})->Wait();
  const at::Tensor host = all.to(at::kCPU);
  std::vector<int> magnitudes(names_.size(), kAllZero);
  for (int64_t i = 0; i < comm.size() * count; ++i) {
    int& magnitude = magnitudes[i % count];
    magnitude = std::max(magnitude, static_cast<int>(host.const_data_ptr<int64_t>()[i]));
  }
  return magnitudes;
}

bool GradientSums::Settle(dist::Comm& comm, const at::Device& device) {
  const std::vector<int> magnitudes = Magnitudes(comm, device);
  reason_.clear();
  size_t others = 0;
  const auto tell = [&](const std::string& what) { reason_.empty() ? void(reason_ = what) : void(++others); };
  bool fits = true, finite = true;
  for (size_t p = 0; p < names_.size(); ++p) {
    not_finite_[p] = magnitudes[p] == kNotFinite;
    finite = finite && !not_finite_[p];
  }
  settled_ = shifts_;
  for (size_t p = 0; p < names_.size(); ++p) {
    if (not_finite_[p]) tell(names_[p] + " has gradients that are not finite");
    if (!finite || magnitudes[p] == kAllZero) continue;  // no step is taken, or nothing was learned
    const Fit fit = Judge(magnitudes[p], settled_[p], addend_bits_);
    if (fit != Fit::kFits) {
      tell(names_[p] + " has gradients up to " + PowerOfTwo(magnitudes[p]) + " where " +
           PowerOfTwo(addend_bits_ - settled_[p]) + (fit == Fit::kOutgrown ? " is the most" : " was provided for"));
      fits = false;
    }
    shifts_[p] = ShiftFor(magnitudes[p], addend_bits_);
  }
  if (others > 0) reason_ += ", and so do " + std::to_string(others) + " more";
  if (!fits && redoing_) {
    throw std::logic_error("exact sums: the same step gave other gradients when it was run again: " + reason_);
  }
  redoing_ = !fits;
  return fits;
}

at::Tensor GradientSums::Read(int p, const at::Tensor& sums) const {
  at::Tensor out = at::empty(sums.sizes(), sums.options().dtype(at::kFloat));
  if (not_finite_[p]) return out.fill_(std::numeric_limits<float>::quiet_NaN());
  if (!sums.is_cpu()) return out.copy_(sums.to(at::kDouble).mul_(std::ldexp(1.0, -settled_[p])));
  const auto* from = sums.const_data_ptr<int64_t>();
  auto* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, sums.numel(), kGrain,
                   [&](int64_t lo, int64_t hi) { Dequantise(from + lo, hi - lo, settled_[p], to + lo); });
  return out;
}

std::map<std::string, int> GradientSums::shifts() const {
  std::map<std::string, int> named;
  for (size_t p = 0; p < names_.size(); ++p) named[names_[p]] = shifts_[p];
  return named;
}

void GradientSums::set_shifts(const std::map<std::string, int>& shifts) {
  for (size_t p = 0; p < names_.size(); ++p) {
    const auto it = shifts.find(names_[p]);
    shifts_[p] = it != shifts.end() ? it->second : FirstShift(addend_bits_);
  }
}

}  // namespace trainyard::engine
