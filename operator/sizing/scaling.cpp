#include "operator/sizing/scaling.h"

#include <algorithm>
#include <cmath>

namespace trainyard::sizing {
namespace {

// omega: how much of the computation a reduction can hide behind; 1 - h: the share of communication that shows at best.
constexpr double kOverlapDdp = 0.60;
constexpr double kOverlapFsdp = 0.85;
constexpr double kHiddenAtBest = 0.64;
constexpr double kBucketBytes = 25e6;  // DDP reduces in buckets of this size

// Ranks that exchange something: `size` of them, `near` of each domain. Stages of a pipeline are laid out one after the
// other, tensor-parallel neighbours next to each other, data-parallel ranks in between.
struct Group {
  double size = 1;
  double near = 1;
  double Domains() const { return std::ceil(size / near); }
};

double DataRanks(const StepTraffic& s) {
  return std::max(1.0, std::floor(static_cast<double>(s.gpus / (s.tensor_parallel * s.pipeline_parallel))));
}

Group GroupOf(const StepTraffic& s, double size) {
  const int64_t of_stage = std::max<int64_t>(1, s.gpus / s.pipeline_parallel);
  const int64_t near = std::min(s.gpus_per_domain, of_stage) / s.tensor_parallel;
  return {size, std::min(size, static_cast<double>(std::max<int64_t>(1, near)))};
}

// half(bytes, messages): seconds of one all-gather or reduce-scatter over the group: a ring inside the domain, and one
// between domains, in which every GPU uses its own network port.
double HalfSeconds(const StepTraffic& s, const Group& group, double bytes, double messages) {
  const double n = group.size;
  const double k = group.Domains();
  if (n <= 1) return 0;
  const double inside = group.near > 1 ? (n - 1) / n * bytes / s.intra_bandwidth : 0;
  const double between = k > 1 ? (k - 1) / k * bytes / (group.near * s.inter_bandwidth) : 0;
  const double hops = (n - k) * s.intra_latency + (k > 1 ? k * s.inter_latency : 0);
  return std::max(inside, between) + messages * hops;
}

// Bytes per parameter that one data-parallel rank deals with: model-parallel neighbours hold the rest.
double OwnShare(const StepTraffic& s) { return 1.0 / static_cast<double>(s.tensor_parallel * s.pipeline_parallel); }

bool Modelled(const StepTraffic& s) {
  if (s.peak_flops <= 0) return false;
  if (s.gpus <= 1) return true;
  return s.intra_bandwidth > 0 && (s.gpus <= s.gpus_per_domain || s.inter_bandwidth > 0);
}

}  // namespace

double CeilingEfficiency(int64_t gpus) {
  if (gpus <= 1) return 1;
  const double doublings = std::log2(static_cast<double>(gpus));
  if (gpus <= 8) return 0.95 - 0.05 * doublings;
  return std::max(0.60, 0.80 - 0.01 * (doublings - 3));
}

double MfuAt(double mfu, double tokens) {
  return mfu * (tokens / (tokens + kHalfMfuTokens)) / (kMfuTokens / (kMfuTokens + kHalfMfuTokens));
}

double ComputeSeconds(const StepTraffic& s) {
  const double met = s.active_parameters > 0 ? s.active_parameters : s.parameters;
  const double backward = s.trained_parameters > 0 ? 2 : 4;
  const double arithmetic =
      ((2 * (1 + s.recompute) + backward) * met + (1 + s.recompute + 2) * s.attention_flops) * OwnShare(s);
  return arithmetic * s.tokens * static_cast<double>(s.accumulation) / (s.peak_flops * s.mfu);
}

double AttentionFlops(double layers, double sequence, double width) { return 4 * layers * sequence * width; }

double CommunicationSeconds(const StepTraffic& s) {
  const double ranks = DataRanks(s);
  if (ranks <= 1) return 0;
  const double layers = std::ceil(static_cast<double>(s.layers) / static_cast<double>(s.pipeline_parallel));
  const double passes = static_cast<double>(s.accumulation);
  const double weights = s.parameter_bytes * s.parameters * OwnShare(s);
  const double trained = (s.trained_parameters > 0 ? s.trained_parameters : s.parameters) * OwnShare(s);
  const double gradients = s.gradient_bytes * trained;
  const Group all = GroupOf(s, ranks);
  switch (s.strategy) {
    case api::Strategy::kHsdp:
    case api::Strategy::kFsdp: {
      const double shard = s.shard_ranks > 0 ? static_cast<double>(s.shard_ranks) : ranks;
      const Group one_copy = GroupOf(s, shard);
      const double within = passes * 2 * HalfSeconds(s, one_copy, weights, layers) +
                            (s.reduce_once ? 1 : passes) * HalfSeconds(s, one_copy, gradients, layers);
      const double copies = ranks / shard;
      if (copies <= 1) return within;
      // Each rank all-reduces its own shard with its likes of the other copies: over the network where a copy fills a
      // domain, else inside it.
      const bool far = copies * shard > all.near;
      const double bandwidth = far ? s.inter_bandwidth : s.intra_bandwidth;
      const double latency = far ? s.inter_latency : s.intra_latency;
      return within + 2 * ((copies - 1) / copies * gradients / shard / bandwidth + layers * (copies - 1) * latency);
    }
    case api::Strategy::kZero2:
      return passes * HalfSeconds(s, all, gradients, layers) + HalfSeconds(s, all, weights, layers);
    case api::Strategy::kZero1:
      return HalfSeconds(s, all, gradients, layers) + HalfSeconds(s, all, weights, layers);
    case api::Strategy::kAuto:
    case api::Strategy::kDdp:  // a ring all-reduce is both halves
      return 2 * HalfSeconds(s, all, gradients, std::ceil(gradients / kBucketBytes));
  }
  return 0;
}

double ExposedSeconds(const StepTraffic& s) {
  const double communication = CommunicationSeconds(s);
  const double overlap = s.strategy == api::Strategy::kFsdp ? kOverlapFsdp : kOverlapDdp;
  return std::max(communication - overlap * ComputeSeconds(s), (1 - kHiddenAtBest) * communication);
}

double ModelParallelSeconds(const StepTraffic& s) {
  const double hidden_state = s.parameter_bytes * s.tokens * s.hidden;
  const double passes = static_cast<double>(s.accumulation);
  double seconds = 0;
  if (s.tensor_parallel > 1) {
    const double t = static_cast<double>(s.tensor_parallel);
    const double layers = std::ceil(static_cast<double>(s.layers) / static_cast<double>(s.pipeline_parallel));
    const bool far = s.tensor_parallel > s.gpus_per_domain;
    const double half = (t - 1) / t * hidden_state / (far ? s.inter_bandwidth : s.intra_bandwidth) +
                        (t - 1) * (far ? s.inter_latency : s.intra_latency);
    seconds += passes * layers * 8 * half;
  }
  if (s.pipeline_parallel > 1) {
    const bool far = s.gpus > s.gpus_per_domain;
    const double sent = hidden_state / static_cast<double>(s.tensor_parallel);
    seconds +=
        passes * 2 * (sent / (far ? s.inter_bandwidth : s.intra_bandwidth) + (far ? s.inter_latency : s.intra_latency));
  }
  return seconds;
}

double BubbleFraction(const StepTraffic& s) {
  const double waiting = static_cast<double>(s.pipeline_parallel - 1);
  return waiting / (static_cast<double>(s.accumulation) + waiting);
}

double PhysicalEfficiency(const StepTraffic& s) {
  const double busy = 1 - BubbleFraction(s);
  if (!Modelled(s)) return s.used * busy;
  const double compute = ComputeSeconds(s);
  const double step = (compute + ModelParallelSeconds(s)) / busy + ExposedSeconds(s) + s.offload_seconds;
  return s.used * compute / step;
}

double PlannedEfficiency(const StepTraffic& s) { return std::min(PhysicalEfficiency(s), CeilingEfficiency(s.gpus)); }

double StepSeconds(const StepTraffic& s) {
  return s.peak_flops > 0 ? s.used * ComputeSeconds(s) / PlannedEfficiency(s) : 0;
}

double Hours(double single_gpu_hours, int64_t gpus, double efficiency) {
  return single_gpu_hours / (static_cast<double>(gpus) * efficiency);
}

double Cost(double hours, int64_t gpus, double price_per_gpu_hour) {
  return hours * static_cast<double>(gpus) * price_per_gpu_hour;
}

double PeakShare(api::Precision precision) { return precision == api::Precision::kFp32 ? 0.5 : 1; }

}  // namespace trainyard::sizing
