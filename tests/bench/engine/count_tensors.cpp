// Counts the CPU tensors of a process that is not ours: a small library that torch_rank.py loads into Python with
// ctypes. It stands in front of LibTorch's own allocator and books what malloc says that each block has, which is what
// was asked for, rounded up to 16 bytes and, for the largest blocks, to pages.
#include <malloc.h>

#include <cstdint>

#include <c10/core/CPUAllocator.h>

#include "trainer/device/counting_allocator.h"

namespace {

trainyard::device::ByteCounter counter;
c10::Allocator* const plain = c10::GetDefaultCPUAllocator();

int64_t Usable(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }

void Free(void* data) {
  counter.Add(-Usable(data));
  plain->raw_deallocate(data);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : plain->raw_allocate(bytes);
    if (data != nullptr) counter.Add(Usable(data));
    return {data, data, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { plain->copy_data(to, from, bytes); }
} counting;

}  // namespace

extern "C" {

// Counts from now on; tensors made before are never counted.
void trainyard_count_start() { c10::SetAllocator(c10::DeviceType::CPU, &counting); }
int64_t trainyard_count_peak() { return counter.Stats().peak_bytes; }
void trainyard_count_reset() { counter.ResetPeak(); }
// Back to the plain allocator, for timing; tensors counted before are freed as they were made.
void trainyard_count_stop() { c10::SetAllocator(c10::DeviceType::CPU, plain); }
}
