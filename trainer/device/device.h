// The machine that holds tensors: allocation, storage resize, events, statistics. CPU lives here; other devices come as
// plug-ins behind the same interface, so the rooms above never name one.
// Thread-safety: every method may be called from any thread; a tensor itself belongs to whoever holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <ATen/ATen.h>

#include "operator/base/error.h"

namespace trainyard::device {

// Bytes of live tensors, and the largest such sum so far.
struct MemoryStats {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

// A point in the work queued so far. On the CPU work is done when the call returns, so an event is always past.
class Event {
 public:
  virtual ~Event() = default;
  // True when everything queued before the event has finished.
  virtual bool Done() const = 0;
  // Blocks the calling thread until then.
  virtual void Synchronize() = 0;
  // Makes work queued from now on by this thread start after the event, without blocking the thread.
  virtual void Order() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // "CPU" or "CUDA".
  virtual std::string_view name() const = 0;
  virtual at::Device torch() const = 0;

  // An uninitialised, contiguous tensor of this device whose storage ResizeStorage may free and refill.
  virtual at::Tensor Empty(at::IntArrayRef shape, at::ScalarType type) = 0;
  // The same in host memory from which the device copies fastest (page-locked where that exists), counted in
  // HostStats() and not in Stats() or OperationStats().
  virtual at::Tensor PinnedEmpty(at::IntArrayRef shape, at::ScalarType type) = 0;

  // Makes the storage of `t` exactly `bytes` long: 0 frees it, while tensors and saved graphs that use it stay alive.
  // Contents are kept up to the smaller size; new bytes are uninitialised. A freed tensor must not be read: its data
  // pointer is null. Refill through t.variable_data(), which does not bump the version counter that autograd checks.
  // `t` comes from Empty of this device and starts its storage.
  virtual void ResizeStorage(const at::Tensor& t, int64_t bytes) = 0;

  // Blocks until all queued work has finished.
  virtual void Synchronize() = 0;
  virtual std::unique_ptr<Event> Record() = 0;

  // What this device handed out (Empty, ResizeStorage).
  virtual MemoryStats Stats() const = 0;
  // What PinnedEmpty handed out, in bytes of its tensors.
  virtual MemoryStats HostStats() const = 0;
  // What operations made on it in this process: activations, temporaries, gradients until someone takes them.
  virtual MemoryStats OperationStats() const = 0;
  // Both, over all devices of this kind in the process.
  virtual MemoryStats TotalStats() const = 0;
  // Takes the storage of `t`, which an operation made, out of OperationStats: its holder accounts for it.
  virtual void TakeFromOperations(const at::Tensor& t) = 0;
  // Starts new peaks at the current figures.
  virtual void ResetPeak() = 0;
};

// Opens "CPU" or "CUDA"; `index`: which GPU of this machine. Errors: kInvalidArgument for another name,
// kFailedPrecondition where the device is not to be had. There is no fall-back from CUDA to CPU: a job that asked for
// GPUs must not train on something else in silence.
Result<std::unique_ptr<Device>> Open(std::string_view name, int index = 0);

}  // namespace trainyard::device
