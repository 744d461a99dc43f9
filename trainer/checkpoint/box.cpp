#include "trainer/checkpoint/box.h"

#include <algorithm>
#include <numeric>

namespace trainyard::checkpoint {
namespace {

// Rows of a tensor whose boxes span all other dimensions: gaps and overlaps can be named by row.
std::string RowProblem(int64_t rows, std::vector<Box> boxes) {
  std::sort(boxes.begin(), boxes.end(), [](const Box& x, const Box& y) { return x.offset[0] < y.offset[0]; });
  int64_t next = 0;
  const auto range = [](int64_t lo, int64_t hi) {
    return "rows [" + std::to_string(lo) + ", " + std::to_string(hi) + ")";
  };
  for (const Box& box : boxes) {
    if (box.offset[0] > next) return range(next, box.offset[0]) + " are in no file";
    if (box.offset[0] < next)
      return range(box.offset[0], std::min(next, box.offset[0] + box.shape[0])) + " are there twice";
    next = box.offset[0] + box.shape[0];
  }
  if (next < rows) return range(next, rows) + " are in no file";
  return "";
}

}  // namespace

int64_t Box::elements() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }

std::string Box::ToString() const {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d ? ", " : "") + std::to_string(offset[d]) + ":" + std::to_string(offset[d] + shape[d]);
  }
  return text + "]";
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box out;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t lo = std::max(a.offset[d], b.offset[d]);
    const int64_t hi = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (hi <= lo) return std::nullopt;
    out.offset.push_back(lo);
    out.shape.push_back(hi - lo);
  }
  return out;
}

std::string TilingProblem(const std::vector<int64_t>& global_shape, const std::vector<Box>& boxes) {
  const Box whole{std::vector<int64_t>(global_shape.size(), 0), global_shape};
  const auto spans_rows = [&](const Box& box) {
    return std::equal(box.shape.begin() + 1, box.shape.end(), global_shape.begin() + 1);
  };
  if (!global_shape.empty() && whole.elements() > 0 && std::all_of(boxes.begin(), boxes.end(), spans_rows)) {
    return RowProblem(global_shape[0], boxes);
  }
  int64_t covered = 0;
  for (const Box& box : boxes) covered += box.elements();
  std::vector<const Box*> sorted;
  for (const Box& box : boxes) sorted.push_back(&box);
  const auto begin = [](const Box* box) { return box->offset.empty() ? 0 : box->offset[0]; };
  std::sort(sorted.begin(), sorted.end(), [&](const Box* x, const Box* y) { return begin(x) < begin(y); });
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int64_t end = sorted[i]->offset.empty() ? 1 : sorted[i]->offset[0] + sorted[i]->shape[0];
    for (size_t j = i + 1; j < sorted.size() && begin(sorted[j]) < end; ++j) {
      if (std::optional<Box> both = Intersect(*sorted[i], *sorted[j])) return both->ToString() + " is there twice";
    }
  }
  if (covered != whole.elements()) {
    return "only " + std::to_string(covered) + " of " + std::to_string(whole.elements()) + " elements are in a file";
  }
  return "";
}

SharedRuns::SharedRuns(const Box& a, const Box& b, const Box& inner) {
  // A run spans the last dimensions as long as both boxes are spanned by the inner one.
  size_t spanned = inner.shape.size();
  bool whole = true;
  while (spanned > 0 && whole) {
    --spanned;
    length_ *= inner.shape[spanned];
    whole = inner.shape[spanned] == a.shape[spanned] && inner.shape[spanned] == b.shape[spanned];
  }
  int64_t stride_a = 1, stride_b = 1;
  for (size_t d = inner.shape.size(); d-- > 0;) {
    first_.a += (inner.offset[d] - a.offset[d]) * stride_a;
    first_.b += (inner.offset[d] - b.offset[d]) * stride_b;
    if (d < spanned) {
      outer_.push_back({inner.shape[d], stride_a, stride_b});
      count_ *= inner.shape[d];
    }
    stride_a *= a.shape[d];
    stride_b *= b.shape[d];
  }
}

SharedRuns::Start SharedRuns::At(int64_t run) const {
  Start start = first_;
  for (const Dimension& d : outer_) {  // innermost first
    start.a += run % d.size * d.stride_a;
    start.b += run % d.size * d.stride_b;
    run /= d.size;
  }
  return start;
}

}  // namespace trainyard::checkpoint
