// The bytes that a step must hand to the wire, from the model's shapes and the stage alone: what the engine's own count
// is held against. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "tests/bench/engine/side.h"

namespace trainyard::bench {

// Bytes of one step after the first, counted as dist::Comm::payload_bytes does (the larger tensor of each call), with n
// the elements of a unit that one owner holds, padding included, e the bytes of a gathered weight, W ranks:
//   stage 0      4 n of each unit: gradients, all-reduced
//   stage 1, 2   W n e of each unit: weights, gathered once; W 4 n: gradients, reduce-scattered
//   stage 3      the same, and each block but the last is gathered a second time for its backward
//   all          W 8 bytes per parameter tensor: the sums of squares of the gradient norm
// Nothing at one rank.
int64_t PayloadOfStep(const Setting& setting);

}  // namespace trainyard::bench
