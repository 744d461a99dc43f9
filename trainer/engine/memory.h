// Bytes that one rank's engine really holds, term by term. Thread-safety: plain value.
#pragma once

#include <cstdint>

namespace trainyard::engine {

struct MemoryReport {
  int64_t params = 0;     // full tensors in the compute type; at stage 3 only what is gathered now
  int64_t gradients = 0;  // accumulated between micro-batches and until the update
  int64_t master = 0;     // master weights that are not the full tensors themselves
  int64_t optimizer = 0;  // first and second moments
  int64_t buffers = 0;    // gather and reduce buffers alive now
  // Highest values seen since construction.
  int64_t peak_params = 0;
  int64_t peak_gradients = 0;
  int64_t peak_buffers = 0;
  int64_t peak_total = 0;

  int64_t total() const { return params + gradients + master + optimizer + buffers; }
};

}  // namespace trainyard::engine
