#include "trainer/device/cpu_device.h"

#include <atomic>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

namespace trainyard::device {
namespace {

// LibTorch's own CPU allocator, with its bytes counted. Blocks may outlive the device (a tensor held by someone else),
// so the counters are shared by all blocks.
class CountingAllocator final : public c10::Allocator {
 public:
  struct Counters {
    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
  };

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr inner = base_->allocate(bytes);
    void* const data = inner.get();
    const int64_t now = counters_->current.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
    int64_t peak = counters_->peak.load();
    while (now > peak && !counters_->peak.compare_exchange_weak(peak, now)) {
    }
    auto* block = new Block{std::move(inner), counters_, static_cast<int64_t>(bytes)};
    return {data, block, &Free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { base_->copy_data(dest, src, count); }

  Counters& counters() const { return *counters_; }

 private:
  struct Block {
    c10::DataPtr inner;
    std::shared_ptr<Counters> counters;
    int64_t bytes;
  };
  static void Free(void* context) {
    auto* block = static_cast<Block*>(context);
    block->counters->current.fetch_sub(block->bytes);
    delete block;
  }

  c10::Allocator* const base_ = c10::GetDefaultCPUAllocator();
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
};

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
    return at::detail::empty_generic(shape, allocator_, c10::DispatchKeySet(c10::DispatchKey::CPU), type, std::nullopt);
  }

  at::Tensor PinnedEmpty(at::IntArrayRef shape, at::ScalarType type) override {
    return at::empty(shape, at::TensorOptions(type));
  }

  void ResizeStorage(const at::Tensor& t, int64_t bytes) override {
    TORCH_CHECK(t.storage_offset() == 0, "ResizeStorage: the tensor must start its storage");
    c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    if (static_cast<int64_t>(storage->nbytes()) != bytes) {
      at::native::resize_bytes_cpu(storage, static_cast<size_t>(bytes));
    }
  }

  void Synchronize() override {}
  std::unique_ptr<Event> Record() override { return std::make_unique<PastEvent>(); }

  MemoryStats Stats() const override {
    const auto& counters = allocator_->counters();
    return {counters.current.load(), counters.peak.load()};
  }
  void ResetPeak() override { allocator_->counters().peak.store(allocator_->counters().current.load()); }

 private:
  CountingAllocator* const allocator_ = new CountingAllocator;  // NOLINT: leaked on purpose, see Empty
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace trainyard::device
