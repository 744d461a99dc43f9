// Cuts a row of parameters into reductions of bounded size. No LibTorch here. Thread-safety: a plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard::engine {

// Some parameters that lie one after another in memory of their own, or a part of one: buckets of the same parameters
// are parts of one memory.
struct Bucket {
  size_t first = 0, end = 0;  // parameters first .. end-1
  int64_t lo = 0, hi = 0;     // elements of their memory
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// `sizes`: elements of the parameters in the order in which their gradients come. No bucket has more than `max`
// elements (at least 1): small parameters share one, a larger one is cut into nearly equal parts.
std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& sizes, int64_t max);

}  // namespace trainyard::engine
