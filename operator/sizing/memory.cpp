#include "operator/sizing/memory.h"

#include <algorithm>
#include <cmath>

#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {

int64_t ReferenceStateBytes(int64_t parameters) { return 16 * parameters; }

PerGpuBytes Estimate(const MemoryInput& asked, int64_t capacity_bytes) {
  if (!asked.sums) {
    MemoryInput prepared = asked;
    Prepare(prepared);
    return Estimate(prepared, capacity_bytes);
  }
  const MemoryInput& in = asked;
  const Corrections by = Bounded(in.corrections);
  // Capped, so that no sum of terms leaves 63 bits, whatever was asked for.
  auto whole = [](double bytes) { return static_cast<int64_t>(std::ceil(std::min(bytes, 1e17))); };
  const StateBytes state = StateOnGpu(in);
  PerGpuBytes out;
  out.weights = whole(by.states * state.weights);
  out.gradients = whole(by.states * state.gradients);
  out.master = whole(by.states * state.master);
  out.optimizer = whole(by.states * state.optimizer);
  out.activations = whole(by.activations * ActivationBytes(in));
  out.logits = whole(by.activations * LogitBytes(in));
  out.buffers = whole(by.buffers * BufferBytes(in));
  const bool alone = in.ranks * in.tensor_parallel * in.pipeline_parallel <= 1;
  const int64_t tensors =
      out.weights + out.gradients + out.master + out.optimizer + out.activations + out.logits + out.buffers;
  out.overhead = whole(by.overhead * ((in.engine.fragmentation - 1) * static_cast<double>(tensors) +
                                      in.engine.context_bytes + (alone ? 0 : in.engine.communicator_bytes)));
  out.total = tensors + out.overhead;
  out.capacity = capacity_bytes;
  return out;
}

int64_t UsableBytes(int64_t memory_mib, double reserve) {
  const double percent = static_cast<double>(memory_mib * 1024 * 1024 / 100);
  return static_cast<int64_t>(percent * (100 - 100 * std::clamp(reserve, 0.0, 1.0)));
}

}  // namespace trainyard::sizing
