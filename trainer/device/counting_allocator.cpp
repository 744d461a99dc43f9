#include "trainer/device/counting_allocator.h"

#include <unistd.h>

#include <new>

#include "trainer/device/arena.h"

namespace trainyard::device {
namespace {

// Stands before the bytes of each block. Some operations insist on raw_allocate, whose deleter is told the data alone.
struct alignas(Arena::kAlignment) Header {
  ByteCounter* counter;  // besides the total; null: that one only
  int64_t bytes;
};

Header* HeaderOf(void* data) { return static_cast<Header*>(data) - 1; }

Arena& Memory() {
  // All the machine has, twice over: gaps take addresses, not memory.
  static auto* const arena = new Arena(2 * static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                                       static_cast<size_t>(sysconf(_SC_PAGESIZE)));  // NOLINT: see the header
  return *arena;
}

void FreeCounted(void* data) {
  if (data == nullptr) return;
  Header* const header = HeaderOf(data);
  if (header->counter != nullptr) header->counter->Add(-header->bytes);
  TotalBytes().Add(-header->bytes);
  Memory().Free(header);
}

ByteCounter& Operations() {
  static auto* const counter = new ByteCounter;  // NOLINT: leaked on purpose, its tensors may outlive everything
  return *counter;
}

}  // namespace

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &FreeCounted, at::Device(at::kCPU)};
  void* const block = Memory().Allocate(sizeof(Header) + bytes);
  TORCH_CHECK(block != nullptr, "can't allocate memory: ", bytes, " bytes for a tensor");
  auto* const header = new (block) Header{&counter_, static_cast<int64_t>(bytes)};
  counter_.Add(header->bytes);
  TotalBytes().Add(header->bytes);
  void* const data = header + 1;
  return {data, data, &FreeCounted, at::Device(at::kCPU)};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return &FreeCounted; }

ByteCounter& OperationBytes() {
  static const bool made = [] {
    c10::SetAllocator(c10::DeviceType::CPU, new CountingAllocator(Operations()));  // NOLINT: LibTorch keeps it
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
  const c10::DataPtr& data = t.storage().data_ptr();
  if (data.get() == nullptr || data.get_deleter() != &FreeCounted) return;
  Header* const header = HeaderOf(data.get_context());
  if (header->counter != &Operations()) return;
  header->counter = nullptr;
  Operations().Add(-header->bytes);
}

}  // namespace trainyard::device
