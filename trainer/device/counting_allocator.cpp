#include "trainer/device/counting_allocator.h"

#include <malloc.h>

#include <utility>

namespace trainyard::device {
namespace {

struct Block {
  c10::DataPtr inner;
  ByteCounter* counter;
  int64_t bytes;
};

void FreeBlock(void* context) {
  auto* block = static_cast<Block*>(context);
  block->counter->Add(-block->bytes);
  TotalBytes().Add(-block->bytes);
  delete block;
}

ByteCounter& Operations() {
  static auto* const counter = new ByteCounter;  // NOLINT: leaked on purpose, its tensors may outlive everything
  return *counter;
}

int64_t Usable(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }

void FreeTaken(void* data) {
  TotalBytes().Add(-Usable(data));
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

void FreeOperation(void* data) {
  Operations().Add(-Usable(data));
  FreeTaken(data);
}

// Some operations insist on raw_allocate, which needs the context to be the data: malloc knows the size.
class OperationsAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : base_->raw_allocate(bytes);
    if (data != nullptr) {
      Operations().Add(Usable(data));
      TotalBytes().Add(Usable(data));
    }
    return {data, data, &FreeOperation, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeOperation; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { base_->copy_data(dest, src, count); }

 private:
  c10::Allocator* const base_ = c10::GetDefaultCPUAllocator();
};

}  // namespace

c10::DataPtr DeviceAllocator::allocate(size_t bytes) {
  c10::DataPtr inner = base_->allocate(bytes);
  void* const data = inner.get();
  auto* block = new Block{std::move(inner), &counter_, static_cast<int64_t>(bytes)};
  counter_.Add(block->bytes);
  TotalBytes().Add(block->bytes);
  return {data, block, &FreeBlock, at::Device(at::kCPU)};
}

ByteCounter& OperationBytes() {
  static const bool made = [] {
    c10::SetAllocator(c10::DeviceType::CPU, new OperationsAllocator);  // NOLINT: LibTorch keeps it
    return true;
  }();
  (void)made;
  return Operations();
}

ByteCounter& TotalBytes() {
  static auto* const total = new ByteCounter;  // NOLINT: as above
  return *total;
}

void TakeFromOperations(const at::Tensor& t) {
  c10::DataPtr& data = t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get() != nullptr && data.compare_exchange_deleter(&FreeOperation, &FreeTaken)) {
    Operations().Add(-Usable(data.get()));
  }
}

}  // namespace trainyard::device
