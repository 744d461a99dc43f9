// One row of a plan: for a given product and count, the simplest strategy, the least recomputation and the largest
// micro batch that fit. Private to the room. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/plan.h"

namespace trainyard::sizing {

// A product as the request may use it.
struct Candidate {
  const GpuProduct* product = nullptr;
  int64_t memory_mib = 0;
  int64_t gpus_per_node = 0;
  int64_t nodes = 0;  // 0: unlimited
};
Result<Candidate> CandidateOf(const ProductSupply& supply);

// Memory part of an option: strategy, checkpointing, micro batch, accumulation, bytes, fits and why. Where nothing
// fits, the thriftiest combination, with fits = false.
PlanOption Choose(const PlanRequest& request, const Candidate& candidate, int64_t gpus, int64_t per_node);

// "162.3 GiB of 140.4 GiB per GPU".
std::string NeedOf(const PlanOption& option);

// Micro-batches that the busiest rank runs in one optimizer step.
int64_t Accumulation(int64_t global_batch, int64_t micro_batch, int64_t ranks);

// Smallest count from `least` to `most` that fits in full, and its option: `least` itself, then the proposed counts.
// Nothing when none fits.
std::optional<PlanOption> SmallestFull(const PlanRequest& request, const Candidate& candidate, int64_t least,
                                       int64_t most);
// Smallest proposed count whose GPUs hold 16 P together.
int64_t SmallestStateOnly(int64_t parameters, const Candidate& candidate);

}  // namespace trainyard::sizing
