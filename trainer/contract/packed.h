// Bytes of numbers that are kept in fewer bits than their type has. A row is packed by itself, so that a shard of rows
// is the same bytes at every world size. The trainer allocates by these and the planner counts by them. Header only, no
// dependencies. Thread-safety: pure functions.
#pragma once

#include <cstdint>

namespace trainyard::contract {

// Numbers of a row that share one scale in NF4 (Dettmers et al., "QLoRA", 2023, section 3).
inline constexpr int64_t kNf4Block = 64;

// Blocks of a row of `n` numbers, the last of which may be shorter.
constexpr int64_t Nf4Blocks(int64_t n) { return (n + kNf4Block - 1) / kNf4Block; }

// Bytes of a row of `n` >= 1 numbers in NF4: two codes in each byte, one byte for the scale of each block, and two
// floats that these scales are read by: 4.14 bits per number in rows of 4,096.
constexpr int64_t Nf4RowBytes(int64_t n) { return (n + 1) / 2 + Nf4Blocks(n) + 2 * int64_t{sizeof(float)}; }

// Numbers of a row that share one scale in the moments of 8-bit AdamW, and how many a matrix has at least whose moments
// are kept so (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022, section 2.1; bitsandbytes).
inline constexpr int64_t kMomentBlock = 256;
inline constexpr int64_t kLeastInEightBits = 4096;

// Whether the moments of a parameter of `dimensions` dimensions and `numbers` numbers in all are kept in 8 bits: those
// of vectors and of small matrices are not.
constexpr bool MomentsInEightBits(int64_t dimensions, int64_t numbers) {
  return dimensions > 1 && numbers >= kLeastInEightBits;
}

// Bytes of a row of `n` numbers of one such moment: a byte for each, and a float for each block, the last of which may
// be shorter.
constexpr int64_t MomentRowBytes(int64_t n) {
  return n + (n + kMomentBlock - 1) / kMomentBlock * int64_t{sizeof(float)};
}

}  // namespace trainyard::contract
