#include "operator/sizing/scaling.h"

#include <algorithm>
#include <cmath>

namespace trainyard::sizing {
namespace {

// How much of the computation a reduction can hide behind (backward only for DDP, both passes for FSDP), and the share
// of communication that stays hidden at best. Calibrated on published scaling tables (docs/sizing.md).
constexpr double kOverlapDdp = 0.60;
constexpr double kOverlapFsdp = 0.85;
constexpr double kHiddenAtBest = 0.64;
constexpr double kBucketBytes = 25e6;  // DDP reduces in buckets of this size

// Seconds of one all-gather or reduce-scatter of `bytes` in `messages` messages over all GPUs: a ring inside the
// domain, then one between domains over each GPU's own network port.
double HalfSeconds(const StepTraffic& s, double bytes, double messages) {
  const double n = static_cast<double>(s.gpus);
  const double g = static_cast<double>(std::min(s.gpus, s.gpus_per_domain));
  const double k = std::ceil(n / g);
  const double inside = (n - 1) / n * bytes / s.intra_bandwidth;
  const double between = k > 1 ? (k - 1) / k * bytes / (g * s.inter_bandwidth) : 0;
  const double hops = (n - k) * s.intra_latency + (k > 1 ? k * s.inter_latency : 0);
  return std::max(inside, between) + messages * hops;
}

double Overlap(api::Strategy strategy) { return strategy == api::Strategy::kFsdp ? kOverlapFsdp : kOverlapDdp; }

}  // namespace

double CeilingEfficiency(int64_t gpus) {
  if (gpus <= 1) return 1;
  const double doublings = std::log2(static_cast<double>(gpus));
  if (gpus <= 8) return 0.95 - 0.05 * doublings;
  return std::max(0.60, 0.80 - 0.01 * (doublings - 3));
}

double ComputeSeconds(const StepTraffic& s) {
  const double recompute = s.recompute ? 4.0 / 3.0 : 1.0;
  return recompute * 6 * s.parameters * s.tokens * static_cast<double>(s.accumulation) / (s.peak_flops * s.mfu);
}

double CommunicationSeconds(const StepTraffic& s) {
  if (s.gpus <= 1) return 0;
  const double layers = static_cast<double>(s.layers);
  const double steps = static_cast<double>(s.accumulation);
  const double weights = s.parameter_bytes * s.parameters;
  const double gradients = s.gradient_bytes * s.parameters;
  switch (s.strategy) {
    case api::Strategy::kFsdp:  // gathered forward and backward, gradients scattered, every micro step
      return steps * (2 * HalfSeconds(s, weights, layers) + HalfSeconds(s, gradients, layers));
    case api::Strategy::kZero2:  // gradients scattered every micro step, weights gathered once
      return steps * HalfSeconds(s, gradients, layers) + HalfSeconds(s, weights, layers);
    case api::Strategy::kZero1:
      return HalfSeconds(s, gradients, layers) + HalfSeconds(s, weights, layers);
    case api::Strategy::kAuto:
    case api::Strategy::kDdp:  // a ring all-reduce is both halves
      return 2 * HalfSeconds(s, gradients, std::ceil(gradients / kBucketBytes));
  }
  return 0;
}

double ExposedSeconds(const StepTraffic& s) {
  const double communication = CommunicationSeconds(s);
  return std::max(communication - Overlap(s.strategy) * ComputeSeconds(s), (1 - kHiddenAtBest) * communication);
}

double PhysicalEfficiency(const StepTraffic& s) {
  if (s.gpus <= 1 || s.peak_flops <= 0 || s.intra_bandwidth <= 0) return 1;
  if (s.gpus > s.gpus_per_domain && s.inter_bandwidth <= 0) return 1;
  const double compute = ComputeSeconds(s);
  return compute / (compute + ExposedSeconds(s));
}

double PlannedEfficiency(const StepTraffic& s) { return std::min(PhysicalEfficiency(s), CeilingEfficiency(s.gpus)); }

double IntraNodeBandwidth(const GpuProduct& product) {
  const double one_direction = product.nvlink_gbps / 2 * 1e9;
  switch (product.link) {
    case Link::kProcess:
      return 0;
    case Link::kNvswitch:
    case Link::kNvlinkRack:
      // Share of the specification that ring collectives reach, by NVLink generation.
      return one_direction * (product.nvlink_generation == 3 ? 0.78 : product.nvlink_generation == 4 ? 0.80 : 0.76);
    case Link::kXgmi:
      return 313e9;  // measured bus bandwidth of 8 MI300X
    case Link::kPcieNoPeer:
      return product.pcie_gbps * 1e9 * 0.30;
    case Link::kPcie:
    case Link::kNvlinkBridge:
      return product.pcie_gbps * 1e9 * 0.60;
  }
  return 0;
}

double InterNodeBandwidth(const GpuProduct& product) {
  // Across the nodes of an NVLink rack the links are the same; a plan cannot see whether a gang stays in one rack, so
  // it counts the network.
  return product.nic_gbps * 1e9 * 0.75;
}

double IntraNodeLatency(const GpuProduct& product) { return product.HasNvlinkInNode() ? 3.4e-6 : 5.7e-6; }

double Hours(double single_gpu_hours, int64_t gpus, double efficiency) {
  return single_gpu_hours / (static_cast<double>(gpus) * efficiency);
}

double SingleGpuHours(double parameters, double tokens, double peak_flops, double mfu, bool recompute) {
  return (recompute ? 8.0 : 6.0) * parameters * tokens / (peak_flops * mfu) / 3600;
}

double Cost(double hours, int64_t gpus, double price_per_gpu_hour) {
  return hours * static_cast<double>(gpus) * price_per_gpu_hour;
}

}  // namespace trainyard::sizing
