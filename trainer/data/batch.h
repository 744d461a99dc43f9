// From the global batch of a step to what one rank runs. Micro-batch k of a step is always the same sequences, whatever
// the world size; only which rank runs it changes. Thread-safety: pure functions; BatchReader is immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/data/dataset.h"

namespace trainyard::data {

// Sequences [first, first + rows) of the global batch, counted from its start.
struct MicroBatchPlan {
  int64_t first = 0;
  int64_t rows = 0;
  bool padding = false;  // run for the collectives only: its loss has weight zero and counts no tokens
};

// The micro-batches of `rank` in the order it runs them. The global batch is cut into ceil(global_batch / micro_batch)
// micro-batches (the last may be short), which go to the ranks in contiguous runs whose lengths differ by at most one.
// Every rank gets the same number of plans: a short rank ends with a padding micro-batch of one row.
// Requires global_batch, micro_batch, world >= 1 and 0 <= rank < world.
std::vector<MicroBatchPlan> PlanStep(int64_t global_batch, int64_t micro_batch, int world, int rank);

enum class Order {
  kShuffled,    // training: SampleIndex
  kSequential,  // validation: sample = cursor, from the start again after the last
};

// Reads sequences of one source by global cursor. The source must outlive it.
class BatchReader {
 public:
  // Error: kInvalidArgument when the source holds less than one sample.
  static Result<BatchReader> Make(const TokenSource& source, int64_t sequence_length, Order order, uint64_t seed);

  int64_t samples() const { return samples_; }
  // [rows, sequence_length + 1] int64 on the CPU: the sequences at cursors [cursor, cursor + rows).
  Result<at::Tensor> Load(int64_t cursor, int64_t rows) const;

 private:
  BatchReader(const TokenSource& source, int64_t sequence_length, int64_t samples, Order order, uint64_t seed)
      : source_(&source), sequence_length_(sequence_length), samples_(samples), order_(order), seed_(seed) {}

  const TokenSource* source_;
  int64_t sequence_length_;
  int64_t samples_;
  Order order_;
  uint64_t seed_;
};

}  // namespace trainyard::data
