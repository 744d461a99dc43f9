#include "trainer/device/cpu_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include "trainer/device/counting_allocator.h"

namespace trainyard::device {
namespace {

class PastEvent final : public Event {
 public:
  bool Done() const override { return true; }
  void Synchronize() override {}
  void Order() override {}
};

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "CPU"; }
  at::Device torch() const override { return at::Device(at::kCPU); }

  at::Tensor Empty(at::IntArrayRef shape, at::ScalarType type) override {
    // Storages keep a plain pointer to their allocator, and tensors may outlive the device: the allocator never dies.
    return Make(allocator_, shape, type);
  }
  at::Tensor PinnedEmpty(at::IntArrayRef shape, at::ScalarType type) override { return Make(host_, shape, type); }

  void ResizeStorage(const at::Tensor& t, int64_t bytes) override {
    TORCH_CHECK(t.storage_offset() == 0, "ResizeStorage: the tensor must start its storage");
    c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    if (static_cast<int64_t>(storage->nbytes()) != bytes) {
      at::native::resize_bytes_cpu(storage, static_cast<size_t>(bytes));
    }
  }

  void Synchronize() override {}
  std::unique_ptr<Event> Record() override { return std::make_unique<PastEvent>(); }

  void TakeFromOperations(const at::Tensor& t) override { device::TakeFromOperations(t); }
  MemoryStats Stats() const override { return allocator_->counter().Stats(); }
  MemoryStats HostStats() const override { return host_->counter().Stats(); }
  MemoryStats OperationStats() const override { return operations_.Stats(); }
  MemoryStats TotalStats() const override { return TotalBytes().Stats(); }
  void ResetPeak() override {
    allocator_->counter().ResetPeak();
    host_->counter().ResetPeak();
    operations_.ResetPeak();
    TotalBytes().ResetPeak();
  }

 private:
  static at::Tensor Make(CountingAllocator* allocator, at::IntArrayRef shape, at::ScalarType type) {
    return at::detail::empty_generic(shape, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), type, std::nullopt);
  }

  // NOLINTNEXTLINE: leaked on purpose, see Empty
  CountingAllocator* const allocator_ = new CountingAllocator(*new ByteCounter);
  CountingAllocator* const host_ = new CountingAllocator(*new ByteCounter);  // NOLINT
  ByteCounter& operations_ = OperationBytes();
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace trainyard::device
