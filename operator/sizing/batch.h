// How a global batch is dealt out to ranks. Thread-safety: pure functions on plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::sizing {

// Micro-batches that the busiest rank runs in one optimizer step: ceil(ceil(global / micro) / ranks).
int64_t Accumulation(int64_t global_batch, int64_t micro_batch, int64_t ranks);

struct Batch {
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  int64_t ranks = 1;
  int64_t effective = 0;  // sequences that count in one optimizer step
  int64_t padding = 0;    // sequences of no weight that fill the last micro-batches
  // Share of all micro-batch places that hold a sequence.
  double Used() const { return static_cast<double>(effective) / static_cast<double>(effective + padding); }
};
// `padded`: our trainer deals the batch out sequence by sequence and fills up, so that the effective batch is
// `global_batch` at every number of ranks. Else micro batch x accumulation x ranks is what a step takes, and the
// nearest such number to `global_batch` is the effective batch (the larger of two equally near).
Batch BatchOf(int64_t global_batch, int64_t micro_batch, int64_t ranks, bool padded);

// Multiples of micro batch x ranks around `global_batch`, smaller first: itself where it is one.
std::vector<int64_t> NearestBatches(int64_t global_batch, int64_t micro_batch, int64_t ranks);

// Micro batches to try, smallest first: `wanted` if it is given; else 1, 2, 4 ... as long as one divides the global
// batch, leaves every rank work, and has at most 16,384 tokens, beyond which little is gained.
// `padded`: and at most a tenth more places than micro batch 1 needs; not `padded`: where some micro batch makes an
// exact product, only those that do.
std::vector<int64_t> MicroBatches(int64_t wanted, int64_t global_batch, int64_t sequence, int64_t ranks, bool padded);

}  // namespace trainyard::sizing
