// The memory of one GPU, term by term and all together. Symbols, as in docs/sizing.md: P parameters, P_b of one block,
// P_r of the root, N ranks that share a state, b micro batch, s sequence, h hidden, e bytes of a computed number. All
// results are bytes. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/memory_host.h"
#include "operator/sizing/memory_in_step.h"
#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

// The reference rule of thumb, all ranks together: 16 P = 2 weights + 2 gradients + 4 master + 8 Adam (ZeRO,
// section 3.1).
int64_t ReferenceStateBytes(int64_t parameters);

// One GPU, term by term; `total` is the sum of the terms, and it fits when total <= capacity.
struct PerGpuBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t master = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t logits = 0;
  int64_t buffers = 0;
  int64_t overhead = 0;  // fragmentation, driver context, communicators
  int64_t total = 0;
  int64_t capacity = 0;  // usable: what the label says less the reserve

  bool Fits() const { return total <= capacity; }
};
PerGpuBytes Estimate(const MemoryInput& in, int64_t capacity_bytes);

// What the node's label says less the reserve, a share of it, which is kept back for what no formula knows.
int64_t UsableBytes(int64_t memory_mib, double reserve = kDefaultDriverReserve);

}  // namespace trainyard::sizing
