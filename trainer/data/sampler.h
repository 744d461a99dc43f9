// Which sample comes when: pure functions of the seed and the global cursor, the number of sequences consumed so far by
// all ranks together. No state, no world size: a resized or resumed job goes on exactly where it stopped.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

namespace trainyard::data {

// Samples of `sequence_length` inputs in `tokens` tokens: sample i is tokens [i*s, i*s + s], s + 1 of them, since the
// last target of one sample is the first input of the next. 0 when there are too few.
int64_t SampleCount(int64_t tokens, int64_t sequence_length);

// The sample at `cursor` >= 0 of a stream that goes through all `samples` > 0 samples once per epoch, in another order
// each time: epoch = cursor / samples, and within it a keyed permutation of [0, samples). The permutation is a
// six-round Feistel network over the next power of four with cycle walking (Black and Rogaway, "Ciphers with Arbitrary
// Finite Domains", 2002), keyed by (seed, epoch).
int64_t SampleIndex(uint64_t seed, int64_t samples, int64_t cursor);

}  // namespace trainyard::data
