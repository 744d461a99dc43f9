// From the global batch of a step to what one rank runs. Micro-batch k of a step is always the same sequences, whatever
// the world size; only which rank runs it changes. Thread-safety: pure functions; BatchReader is immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/mixture.h"

namespace trainyard::data {

// Sequences [first, first + rows) of the global batch, counted from its start.
struct MicroBatchPlan {
  int64_t first = 0;
  int64_t rows = 0;
  bool padding = false;  // run for the collectives only: its loss has weight zero and counts no tokens
};

// ceil(global_batch / micro_batch).
inline int64_t MicroBatchCount(int64_t global_batch, int64_t micro_batch) {
  return (global_batch + micro_batch - 1) / micro_batch;
}

// The micro-batches of `rank` in the order it runs them. The global batch is cut into ceil(global_batch / micro_batch)
// micro-batches (the last may be short), which go to the ranks in contiguous runs whose lengths differ by at most one.
// Every rank gets the same number of plans: a short rank ends with a padding micro-batch of one row.
// Requires global_batch, micro_batch, world >= 1 and 0 <= rank < world.
std::vector<MicroBatchPlan> PlanStep(int64_t global_batch, int64_t micro_batch, int world, int rank);

enum class Order {
  kShuffled,    // training: SampleIndex
  kSequential,  // validation: sample = cursor, from the start again after the last
};

struct ReadOptions {
  int64_t sequence_length = 0;
  Order order = Order::kShuffled;
  uint64_t seed = 0;  // of the order
  // The token that ends a document. What follows it does not continue what precedes it, so the target after a separator
  // has no weight in the loss.
  std::optional<int64_t> separator;
};

struct Batch {
  at::Tensor tokens;  // [rows, sequence_length + 1] int64 on the CPU
  // [rows, sequence_length] float: 0 for a target that does not count, since it follows a separator or its file says
  // so; undefined: all count.
  at::Tensor weights;
  int64_t targets = 0;  // that count
};

// Reads sequences by global cursor, of one source or of a mixture. The sources must outlive it.
class BatchReader {
 public:
  // Sequence n of the stream is sequence `position` of source `source` of mixture.At(n); each source goes through its
  // own samples in its own order. Error: kInvalidArgument when a source holds less than one sample, or when its
  // documents end with another token than options.separator.
  static Result<BatchReader> Make(std::vector<const TokenSource*> sources, Mixture mixture, ReadOptions options);
  // One source.
  static Result<BatchReader> Make(const TokenSource& source, ReadOptions options);

  // Of all sources together.
  int64_t samples() const;
  // The source's own, or that of all sources and their shares: what the order of samples depends on, besides the seed.
  std::string fingerprint() const;
  // The sequences at cursors [cursor, cursor + rows). Errors: as TokenSource::Copy.
  Result<Batch> Load(int64_t cursor, int64_t rows) const;

 private:
  struct Source {
    const TokenSource* tokens = nullptr;
    int64_t samples = 0;
    uint64_t seed = 0;
    bool bits = false;  // it says of its tokens which count
  };
  BatchReader(std::vector<Source> sources, Mixture mixture, ReadOptions options)
      : sources_(std::move(sources)), mixture_(std::move(mixture)), options_(options) {}

  std::vector<Source> sources_;
  Mixture mixture_;
  ReadOptions options_;
};

}  // namespace trainyard::data
