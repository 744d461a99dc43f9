// Boxes of n-dimensional tensors: intersection, exact tiling, and the contiguous runs that two boxes share.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::checkpoint {

// `shape` elements from `offset`, stored contiguously in C order.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;

  int64_t elements() const;
  std::string ToString() const;  // "[2:5, 0:8]"
};

// Nothing when they share no element. Both have the same number of dimensions.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Empty when every element of the tensor is in exactly one box; otherwise what is wrong, in words. All boxes lie inside
// the tensor and have elements. Cost: sorting, for row ranges; else pairs that meet in dimension 0.
std::string TilingProblem(const std::vector<int64_t>& global_shape, const std::vector<Box>& boxes);

// The elements of `inner` as runs that are contiguous in both `a` and `b`, which contain it; in C order.
class SharedRuns {
 public:
  SharedRuns(const Box& a, const Box& b, const Box& inner);

  int64_t count() const { return count_; }
  int64_t length() const { return length_; }  // elements per run
  // First element of run i, counted in `a` and in `b`. `a` grows with i.
  struct Start {
    int64_t a = 0;
    int64_t b = 0;
  };
  Start At(int64_t run) const;

 private:
  struct Dimension {
    int64_t size, stride_a, stride_b;
  };
  std::vector<Dimension> outer_;  // dimensions that a run does not span
  Start first_;
  int64_t count_ = 1;
  int64_t length_ = 1;
};

}  // namespace trainyard::checkpoint
