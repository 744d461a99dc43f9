// Dropout (Srivastava et al., 2014) as a function of where a number stands: of the seed, the adapter, the step, the
// sequence's place in the global batch, the token's place in the sequence and the column. The same mask at every world
// size, however a batch is divided into micro-batches, and whenever it is asked for again, so that nothing of it is
// kept. Of each 2^24 numbers about rate * 2^24 are dropped; those that stay are as they were: who uses them scales.
// Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace trainyard::model {

// The rows of a batch: sequences `first_sequence` and on of the global batch of `step`.
struct BatchPlace {
  int64_t step = 0;
  int64_t first_sequence = 0;
};

struct Dropout {
  double rate = 0;   // 0: nothing is dropped
  uint64_t key = 0;  // of seed and adapter
  BatchPlace place;
  int64_t length = 0;  // tokens of a sequence
};

// x, [n, width] with rows sequence by sequence, with zeros for what is dropped. Without a rate x itself.
at::Tensor Drop(const at::Tensor& x, const Dropout& dropout);

// The same by ATen operations in any memory; for tests to compare with.
at::Tensor DropByOperations(const at::Tensor& x, const Dropout& dropout);

}  // namespace trainyard::model
