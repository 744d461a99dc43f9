// LibTorch's own CPU allocator with its bytes counted: one for what a device hands out, one for what operations make,
// and one sum over both. Blocks may outlive the device (a tensor held by someone else), so no counter ever dies.
// Thread-safety: all of it may be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

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

// Of one device: counts the bytes asked for.
class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { base_->copy_data(dest, src, count); }

  ByteCounter& counter() { return counter_; }

 private:
  c10::Allocator* const base_ = c10::GetDefaultCPUAllocator();
  ByteCounter counter_;
};

// What operations of this process allocate on the CPU, as malloc rounds it. The first call makes an allocator that
// counts LibTorch's CPU allocator.
ByteCounter& OperationBytes();
// Both kinds together.
ByteCounter& TotalBytes();
// Takes the storage of `t` out of OperationBytes; TotalBytes keeps it. Nothing happens to any other storage.
void TakeFromOperations(const at::Tensor& t);

}  // namespace trainyard::device
