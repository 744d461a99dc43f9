// How much of n GPUs a job gets: a conservative ceiling, a physical model of compute and communication, and from their
// minimum the hours and the cost.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/api/training_job.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::sizing {

// C(n), the planning ceiling: 1 for one GPU, 0.95 - 0.05 log2 n up to 8, then 0.80 - 0.01 log2(n / 8), never under
// 0.60.
double CeilingEfficiency(int64_t gpus);

// One optimizer step of one job on one kind of GPU.
struct StepTraffic {
  api::Strategy strategy = api::Strategy::kDdp;
  double parameters = 0;
  int64_t layers = 1;
  double tokens = 0;         // per GPU and micro step
  int64_t accumulation = 1;  // micro steps per optimizer step
  int64_t gpus = 1;
  int64_t gpus_per_domain = 8;  // of one fast domain (a node)
  double peak_flops = 0;        // of one GPU, FLOP/s; 0: not modelled
  double mfu = 0.4;
  bool recompute = false;         // full activation checkpointing: a third more arithmetic
  double parameter_bytes = 2;     // of a gathered weight
  double gradient_bytes = 2;      // of a reduced gradient
  double intra_bandwidth = 0;     // bytes/s per GPU and direction inside the domain, as achieved
  double inter_bandwidth = 0;     // bytes/s per GPU between domains, as achieved
  double intra_latency = 3.4e-6;  // s per message and hop
  double inter_latency = 14e-6;
};

double ComputeSeconds(const StepTraffic& step);        // 6 P tokens / (peak MFU)
double CommunicationSeconds(const StepTraffic& step);  // ring all-gathers and reduce-scatters
double ExposedSeconds(const StepTraffic& step);        // the part that compute does not hide
double PhysicalEfficiency(const StepTraffic& step);    // compute / (compute + exposed); 1 where nothing is modelled
double PlannedEfficiency(const StepTraffic& step);     // the smaller of physical and ceiling

// Achieved bytes/s per GPU and direction between the GPUs of one node of this product, and between nodes.
double IntraNodeBandwidth(const GpuProduct& product);
double InterNodeBandwidth(const GpuProduct& product);
double IntraNodeLatency(const GpuProduct& product);

// single_gpu_hours / (n E).
double Hours(double single_gpu_hours, int64_t gpus, double efficiency);
// Hours of one GPU for `tokens` training tokens: 6 P tokens / (peak MFU) (8 P with full recomputation).
double SingleGpuHours(double parameters, double tokens, double peak_flops, double mfu, bool recompute);
double Cost(double hours, int64_t gpus, double price_per_gpu_hour);

}  // namespace trainyard::sizing
