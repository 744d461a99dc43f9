// Bytes that one rank's engine really holds, term by term, on the device and, with offload, in host memory and on disk.
// Thread-safety: plain values.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard::engine {

struct MemoryReport {
  int64_t params = 0;     // full tensors in the compute type; at stage 3 only what is gathered now
  int64_t gradients = 0;  // accumulated between micro-batches and until the update
  int64_t master = 0;     // master weights that are not the full tensors themselves
  int64_t optimizer = 0;  // what the optimizer keeps: moments, momentum
  int64_t buffers = 0;    // gather and reduce buffers alive now
  // In host memory, with offload.
  int64_t host_weights = 0;    // own rows in the compute type that full tensors are gathered from
  int64_t host_master = 0;     // master weights; in FP32 they are what is gathered from
  int64_t host_optimizer = 0;  // what the optimizer keeps
  int64_t host_windows = 0;    // for the units that are read from disk, updated and written back
  // In the offload file, whole blocks.
  int64_t disk_master = 0;
  int64_t disk_optimizer = 0;
  // Highest values seen since construction.
  int64_t peak_params = 0;
  int64_t peak_gradients = 0;
  int64_t peak_buffers = 0;
  int64_t peak_total = 0;

  int64_t host() const { return host_weights + host_master + host_optimizer + host_windows; }
  int64_t disk() const { return disk_master + disk_optimizer; }
  int64_t total() const { return params + gradients + master + optimizer + buffers; }  // on the device

  // Books `bytes` (negative: released) on one of the terms above and moves the peaks.
  void Book(int64_t MemoryReport::* term, int64_t bytes) {
    this->*term += bytes;
    peak_params = std::max(peak_params, params);
    peak_gradients = std::max(peak_gradients, gradients);
    peak_buffers = std::max(peak_buffers, buffers);
    peak_total = std::max(peak_total, total());
  }
};

}  // namespace trainyard::engine
