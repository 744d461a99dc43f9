// How much of n GPUs a job gets: a conservative ceiling, a physical model of compute and communication, and from their
// minimum the hours and the cost. Symbols as in docs/sizing.md: P parameters, L layers, tau tokens of one GPU and pass,
// a passes per optimizer step, n GPUs, g of them in one fast domain, F peak, m utilisation. Bandwidths of products are
// in links.h. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/api/training_job.h"

namespace trainyard::sizing {

// C(n), the planning ceiling, a share: 1 for one GPU, 0.95 - 0.05 log2 n up to 8, then 0.80 - 0.01 log2(n / 8), never
// under 0.60. It stands for what the physical model leaves out: stragglers, data loading, stalls, restarts.
double CeilingEfficiency(int64_t gpus);

// m at `tokens` per GPU and pass, from what a product is planned with (`mfu`, meant at kMfuTokens): proportional to
// tokens / (tokens + kHalfMfuTokens), since each kernel has a cost of its own that more tokens spread.
// kHalfMfuTokens is fitted on two published pairs of runs that differ in the micro batch only, after what
// PhysicalEfficiency explains of them: llm-foundry on H100, 70B at 4,096 and 16,384 tokens (MFU 36.15 and 42.57 %) asks
// for 660, 30B at 6,144 and 20,480 (38.11 and 43.07 %) for 826.
inline constexpr double kMfuTokens = 4096;
inline constexpr double kHalfMfuTokens = 700;
double MfuAt(double mfu, double tokens);

// One optimizer step of one job on one kind of GPU.
struct StepTraffic {
  api::Strategy strategy = api::Strategy::kDdp;
  double parameters = 0;
  double active_parameters = 0;   // that one token meets (mixture of experts); 0: all
  double trained_parameters = 0;  // adapters on a frozen base; 0: all
  double attention_flops = 0;     // scores and values, of one token's forward pass through all layers; 0: left out
  int64_t layers = 1;
  double hidden = 0;         // of a hidden state; only tensor and pipeline parallelism send those
  double tokens = 0;         // tau
  int64_t accumulation = 1;  // a
  int64_t gpus = 1;          // n = data-parallel ranks x tensor_parallel x pipeline_parallel
  int64_t tensor_parallel = 1;
  int64_t pipeline_parallel = 1;
  bool reduce_once = false;       // of FSDP: gradients are reduced with the last pass only
  int64_t shard_ranks = 0;        // HSDP: data-parallel ranks that share one copy of the state; 0: all
  int64_t gpus_per_domain = 8;    // g, of one fast domain (a node)
  double peak_flops = 0;          // F, FLOP/s; 0: not modelled
  double mfu = 0.4;               // m, at this tau
  double recompute = 0;           // of a forward pass that is done again: 1 with full activation checkpointing
  double used = 1;                // of tau a n that are tokens of the batch, not padding
  double parameter_bytes = 2;     // of a gathered weight
  double gradient_bytes = 2;      // of a reduced gradient
  double intra_bandwidth = 0;     // bytes/s per GPU and direction inside the domain, as achieved
  double inter_bandwidth = 0;     // bytes/s per GPU between domains, as achieved
  double intra_latency = 3.4e-6;  // s per message and hop
  double inter_latency = 14e-6;
  double offload_seconds = 0;  // per step, for state that is kept off the GPU
};

// Seconds of one step on one GPU, nothing but arithmetic: 6 P tau a / (F m), with 8 for 6 under full recomputation
// (2 P for each forward pass, 4 P backward), and 2 P backward where the weights are frozen; attention's own products
// once for each forward pass and twice backward (Narayanan et al., 2021, appendix).
double ComputeSeconds(const StepTraffic& step);
// 4 L s w, over the whole sequence of s tokens, w numbers wide, as published utilisations count it (PaLM, 2022,
// appendix B): causal programs that skip half of it look as much faster.
double AttentionFlops(double layers, double sequence, double width);
// Ring all-gathers and reduce-scatters of the data-parallel ranks (Rajbhandari et al., 2020, section 7): DDP
// all-reduces once; ZeRO-1 and 2 scatter gradients and gather weights; FSDP gathers twice and scatters once per pass;
// HSDP does that within `shard_ranks` and all-reduces the shards between the copies.
double CommunicationSeconds(const StepTraffic& step);
// The part of it that computing does not hide: max(t_comm - omega t_comp, (1 - h) t_comm), omega 0.60 for DDP, whose
// reductions run beside the backward pass, 0.85 for FSDP; h = 0.64 is fitted on published scaling (scaling_test.cpp).
double ExposedSeconds(const StepTraffic& step);
// All-reduces of tensor parallelism, 4 per layer and pass of a hidden state each (Shoeybi et al., 2019), and hand-overs
// of pipeline stages: nothing hides them.
double ModelParallelSeconds(const StepTraffic& step);
// Of a pipelined pass that its stages wait: (p - 1) / (a + p - 1) for p stages (Narayanan et al., 2021).
double BubbleFraction(const StepTraffic& step);
// Of n times one GPU: useful computing / the whole step. 1 where nothing is modelled, less padding and bubble.
double PhysicalEfficiency(const StepTraffic& step);
double PlannedEfficiency(const StepTraffic& step);  // the smaller of physical and ceiling
// Seconds of the step as planned: useful computing / planned efficiency. 0 where nothing is modelled.
double StepSeconds(const StepTraffic& step);

// single_gpu_hours / (n E).
double Hours(double single_gpu_hours, int64_t gpus, double efficiency);
double Cost(double hours, int64_t gpus, double price_per_gpu_hour);

// Peak of matrix products in a precision, over that in BF16: FP32 products run on the tensor cores as TF32, at half the
// rate on every product of the catalogue.
double PeakShare(api::Precision precision);

}  // namespace trainyard::sizing
