// Cuts a tensor into pieces of bounded size, so that what walks over one needs no memory for the whole.
// Thread-safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "operator/base/error.h"
#include "trainer/checkpoint/box.h"

namespace trainyard::checkpoint {

// Visits boxes that follow each other without holes in C order, tile a tensor of `shape` and have at most
// `most_elements` (at least 1) elements each. `visit(const Box&) -> Status`; its error ends the walk. A tensor without
// elements has no pieces.
template <typename Visit>
Status ForEachPiece(const std::vector<int64_t>& shape, int64_t most_elements, const Visit& visit) {
  const Box whole{std::vector<int64_t>(shape.size(), 0), shape};
  if (whole.elements() == 0) return {};
  // Dimensions from `cut` on fit whole; a piece is a range of dimension cut - 1 at one place of those before.
  int64_t inner = 1;
  size_t cut = shape.size();
  while (cut > 0 && inner <= most_elements / shape[cut - 1]) inner *= shape[--cut];
  if (cut == 0) return visit(whole);
  const size_t ranged = cut - 1;
  const int64_t most_rows = std::max<int64_t>(1, most_elements / inner);
  Box piece = whole;
  std::fill(piece.shape.begin(), piece.shape.begin() + static_cast<std::ptrdiff_t>(ranged), 1);
  for (;;) {
    for (int64_t row = 0; row < shape[ranged]; row += most_rows) {
      piece.offset[ranged] = row;
      piece.shape[ranged] = std::min(most_rows, shape[ranged] - row);
      if (Status s = visit(static_cast<const Box&>(piece)); !s) return s;
    }
    size_t d = ranged;
    while (d > 0 && ++piece.offset[d - 1] == shape[d - 1]) piece.offset[--d] = 0;
    if (d == 0) return {};
  }
}

}  // namespace trainyard::checkpoint
