#include "trainer/loop/state_hash.h"

#include <cstdint>

#include <ATen/ATen.h>

#include "trainer/contract/row_hash.h"
#include "trainer/engine/hash.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/live_state.h"

namespace trainyard::loop {

namespace {

// Its bytes in host memory; state on disk is read for that.
at::Tensor InHostMemory(const engine::Engine& engine, const LiveTensor& tensor) {
  if (tensor.live.defined()) return tensor.live.to(at::kCPU).contiguous();
  at::Tensor host = at::empty({tensor.bytes}, at::kByte);
  engine.CopyShard(tensor.unit, tensor.index, tensor.tensor, host.data_ptr());
  return host;
}

}  // namespace

std::string StateHash(Session& s) {
  uint64_t sum = 0;
  const LiveState state = LiveStateOf(*s.engine);
  for (const auto* group : {&state.model, &state.optim}) {
    for (const LiveTensor& tensor : *group) {
      const int64_t rows = tensor.slice.shape[0];
      const at::Tensor host = InHostMemory(*s.engine, tensor);
      sum += contract::HashRows(tensor.slice.name, tensor.slice.offset[0], rows, tensor.bytes / rows,
                                host.const_data_ptr());
    }
  }
  at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::kLong);
  // One rank may copy from its device for longer than another.
  s.world->AllReduce(total, dist::Reduce::kInt64, {.deadline = kStorageDeadline, .label = "state hash"})->Wait();
  return engine::HashText(static_cast<uint64_t>(total.item<int64_t>()));
}

}  // namespace trainyard::loop
