// The engine's own counter of tensor bytes for the PyTorch side: a small library that torch_rank.py loads with ctypes
// into its process. Both sides count the same way: every CPU tensor, as malloc rounds it.
#include <cstdint>

#include <c10/core/CPUAllocator.h>

#include "trainer/device/counting_allocator.h"

namespace {

// What LibTorch used before counting began.
c10::Allocator* const kPlain = c10::GetDefaultCPUAllocator();

}  // namespace

extern "C" {

// Counts from now on; tensors made before are never counted.
void trainyard_count_start() { (void)trainyard::device::OperationBytes(); }
int64_t trainyard_count_peak() { return trainyard::device::OperationBytes().Stats().peak_bytes; }
int64_t trainyard_count_current() { return trainyard::device::OperationBytes().Stats().current_bytes; }
void trainyard_count_reset() { trainyard::device::OperationBytes().ResetPeak(); }
// Back to the plain allocator, for timing; tensors counted before are freed as they were made.
void trainyard_count_stop() { c10::SetAllocator(c10::DeviceType::CPU, kPlain); }
}
