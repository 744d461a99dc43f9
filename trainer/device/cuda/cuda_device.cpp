// Device on an NVIDIA GPU, over LibTorch's caching allocator and CUDA's run-time library. Kernels and hooks of LibTorch
// are in libtorch_cuda.so, which is loaded here and nowhere else, so that the program itself needs no CUDA.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "trainer/device/cuda_plugin.h"

namespace trainyard::device {
namespace {

void Check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    (void)cudaGetLastError();  // else the next call reports it again
    TORCH_CHECK(false, "CUDA: ", what, ": ", cudaGetErrorString(code));
  }
}

// Bytes that this device has handed out.
class Counter {
 public:
  void Add(int64_t bytes) {
    const int64_t now = current_.fetch_add(bytes) + bytes;
    int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  MemoryStats Stats() const { return {current_.load(), peak_.load()}; }
  void ResetPeak() { peak_.store(current_.load()); }

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

struct Block {
  c10::DataPtr inner;
  Counter* counter;
  int64_t bytes;
};

void FreeBlock(void* context) {
  auto* block = static_cast<Block*>(context);
  block->counter->Add(-block->bytes);
  delete block;
}

// LibTorch's caching allocator with the bytes counted. Freed memory goes to the pool of the stream that was current
// when it was allocated, and is used again in that stream's order.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr inner = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
    void* const data = inner.get();
    const at::Device device = inner.device();
    auto* block = new Block{std::move(inner), &counter_, static_cast<int64_t>(bytes)};
    counter_.Add(block->bytes);
    return {data, block, &FreeBlock, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    Check(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream()), "copy");
  }
  Counter& counter() { return counter_; }

 private:
  Counter counter_;
};

class StreamEvent final : public Event {
 public:
  StreamEvent() {
    Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
    Check(cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream()), "event");
  }
  ~StreamEvent() override { (void)cudaEventDestroy(event_); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  bool Done() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) Check(state, "work queued before an event");
    return state == cudaSuccess;
  }
  void Synchronize() override { Check(cudaEventSynchronize(event_), "work queued before an event"); }
  void Order() override { Check(cudaStreamWaitEvent(c10::cuda::getCurrentCUDAStream(), event_, 0), "event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(static_cast<c10::DeviceIndex>(index)) {}

  std::string_view name() const override { return "CUDA"; }
  at::Device torch() const override { return {at::kCUDA, index_}; }

  at::Tensor Empty(at::IntArrayRef shape, at::ScalarType type) override {
    return at::detail::empty_generic(shape, allocator_, c10::DispatchKeySet(c10::DispatchKey::CUDA), type,
                                     std::nullopt);
  }
  at::Tensor PinnedEmpty(at::IntArrayRef shape, at::ScalarType type) override {
    at::Tensor t = at::empty(shape, at::TensorOptions(type).pinned_memory(true));
    Counter* const counter = host_;
    const auto bytes = static_cast<int64_t>(t.nbytes());
    counter->Add(bytes);
    return at::from_blob(
        t.mutable_data_ptr(), shape, [t, counter, bytes](void*) { counter->Add(-bytes); }, t.options());
  }

  void ResizeStorage(const at::Tensor& t, int64_t bytes) override {
    TORCH_CHECK(t.storage_offset() == 0, "ResizeStorage: the tensor must start its storage");
    c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    const int64_t old_bytes = static_cast<int64_t>(storage->nbytes());
    if (old_bytes == bytes) return;
    c10::DataPtr data = bytes == 0 ? c10::DataPtr(nullptr, torch()) : allocator_->allocate(static_cast<size_t>(bytes));
    const int64_t kept = std::min(old_bytes, bytes);
    if (kept > 0) allocator_->copy_data(data.get(), storage->data(), static_cast<size_t>(kept));
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(static_cast<size_t>(bytes));
  }

  void Synchronize() override { Check(cudaDeviceSynchronize(), "queued work"); }
  std::unique_ptr<Event> Record() override { return std::make_unique<StreamEvent>(); }

  MemoryStats Stats() const override { return allocator_->counter().Stats(); }
  MemoryStats HostStats() const override { return host_->Stats(); }
  // What the caching allocator has lent besides. Its peak is that of the whole less what this device holds now: exact
  // while the engine's share stands still, and otherwise the nearest that the allocator's counters tell.
  MemoryStats OperationStats() const override {
    const MemoryStats all = TotalStats();
    const int64_t own = Stats().current_bytes;
    return {std::max<int64_t>(0, all.current_bytes - own), std::max<int64_t>(0, all.peak_bytes - own)};
  }
  MemoryStats TotalStats() const override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto bytes = c10::cuda::CUDACachingAllocator::getDeviceStats(index_).allocated_bytes[kAll];
    return {bytes.current, bytes.peak};
  }
  // Its holder accounts for it as long as it lives; the allocator cannot tell when that ends, so nothing is subtracted.
  void TakeFromOperations(const at::Tensor& /*t*/) override {}
  void ResetPeak() override {
    allocator_->counter().ResetPeak();
    host_->ResetPeak();
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
  }

 private:
  const c10::DeviceIndex index_;
  CountingAllocator* const allocator_ = new CountingAllocator;  // NOLINT: tensors may outlive the device
  Counter* const host_ = new Counter;                           // NOLINT: as above
};

// Its kernels register themselves when the library is loaded.
bool LoadKernels(std::string& error) {
  static void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = dlerror();
    error = why != nullptr ? why : "libtorch_cuda.so cannot be loaded";
  }
  return library != nullptr;
}

std::unique_ptr<Device> Open(int index, std::string& error) {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    error = std::string("no usable GPU: ") + cudaGetErrorString(code);
    return nullptr;
  }
  if (index < 0 || index >= count) {
    error = "there is no GPU " + std::to_string(index) + ", only " + std::to_string(count);
    return nullptr;
  }
  if (!LoadKernels(error)) return nullptr;
  try {
    // Segments that grow instead of many sizes side by side: shards come and go in the same few sizes, activations do
    // not.
    if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr && std::getenv("PYTORCH_ALLOC_CONF") == nullptr) {
      c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
    }
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    return std::make_unique<CudaDevice>(index);
  } catch (const std::exception& e) {
    error = e.what();
    error = error.substr(0, error.find('\n'));
    return nullptr;
  }
}

constexpr CudaPlugin kPlugin{&Open};

}  // namespace
}  // namespace trainyard::device

extern "C" const trainyard::device::CudaPlugin* trainyard_cuda_plugin() { return &trainyard::device::kPlugin; }
