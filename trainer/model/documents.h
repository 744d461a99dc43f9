// Documents that share a packed row: where each begins, so that positions start anew there and attention stays inside.
// Thread-safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace trainyard::model {

// Of [b, s] tokens. As it is made: each row is one document.
struct Documents {
  // Tokens of each document or part of one, row by row: they add up to b * s. Empty: every row is one document.
  std::vector<int64_t> lengths;
  // [b, s] int64 on the tokens' device: the place of each token in its document. Undefined: its place in the row.
  at::Tensor positions;
};

// A document ends with `separator`; what follows begins another. tokens: [b, s] int64, of any device (others than the
// CPU are waited for). Where no row holds a border the result is as it is made.
Documents FindDocuments(const at::Tensor& tokens, int64_t separator);

}  // namespace trainyard::model
