// The CPU allocator of the process: memory from an arena, and its bytes counted as they were asked for, one sum for
// what a device hands out, one for what operations make, and one over both. Blocks may outlive the device (a tensor
// held by someone else), so no counter ever dies. Thread-safety: all of it may be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include "trainer/device/device.h"

namespace trainyard::device {

// A running sum of bytes and its highest value.
class ByteCounter {
 public:
  void Add(int64_t bytes) {
    const int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  MemoryStats Stats() const { return {current_.load(), peak_.load()}; }
  void ResetPeak() { peak_.store(current_.load()); }

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

// Books on one counter besides TotalBytes. Throws c10::Error when there is no memory.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(ByteCounter& counter) : counter_(counter) {}
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  ByteCounter& counter() { return counter_; }

 private:
  ByteCounter& counter_;
};

// What operations of this process allocate on the CPU. The first call puts a counting allocator in LibTorch's place.
ByteCounter& OperationBytes();
// All that counting allocators have made.
ByteCounter& TotalBytes();
// Takes the storage of `t` out of OperationBytes; TotalBytes keeps it. Nothing happens to any other storage.
void TakeFromOperations(const at::Tensor& t);

}  // namespace trainyard::device
