// How far two checkpoints are apart, tensor by tensor, in bounded memory. Thread-safety: free function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

// One tensor that is not the same in both.
struct TensorDifference {
  std::string name;
  std::string structure;  // "only in the first", "[0:3] and [0:4]": then there are no figures; else empty
  std::string dtypes;     // "F32 and BF16" where they are of different formats and are compared by value, else empty
  int64_t elements = 0;
  int64_t different = 0;        // in bits; by value where the formats differ. Zeros of different sign are different.
  int64_t not_finite = 0;       // of these, pairs with a NaN or an infinity; they have no part in what follows
  double largest_absolute = 0;  // |a - b|
  double largest_relative = 0;  // |a - b| / max(|a|, |b|)
};

struct Comparison {
  int64_t tensors = 0;                        // that are in both
  int64_t bytes = 0;                          // of these in the first
  std::vector<TensorDifference> differences;  // in the order of the first, then what only the second has
  std::vector<std::string> train_state;  // keys whose values differ, sorted; not counted as a difference of tensors

  bool same() const { return differences.empty(); }
};

// Compares all tensors, or with `model_only` those of the group "model". Reads both once and checks every hash.
// Errors: kDataLoss, naming file, tensor and rank; of the file system.
Result<Comparison> Compare(Reader& a, Reader& b, bool model_only = false);

}  // namespace trainyard::checkpoint
