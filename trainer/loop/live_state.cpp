#include "trainer/loop/live_state.h"

#include <string>

namespace trainyard::loop {
namespace {

// Frozen parameters are kept in the type that computes.
std::string DtypeOf(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kBFloat16:
      return "BF16";
    default:
      return "F32";
  }
}

LiveState StateOf(const std::vector<engine::ShardView>& shards, const engine::EngineOptions& options) {
  LiveState state;
  const std::vector<const char*> states = optim::StateNames(options.optimizer);
  const at::ScalarType on_disk = options.compute_dtype == at::kDouble ? at::kDouble : at::kFloat;
  for (const engine::ShardView& shard : shards) {
    if (shard.rows.size() == 0) continue;
    std::vector<int64_t> offset(shard.global_shape.size(), 0);
    offset[0] = shard.rows.lo;
    std::vector<int64_t> shape = shard.global_shape;
    shape[0] = shard.rows.size();
    const auto add = [&](std::vector<LiveTensor>& group, const std::string& name, const at::Tensor& live, int tensor) {
      const at::ScalarType type = live.defined() ? live.scalar_type() : on_disk;
      group.push_back({.slice = {name, DtypeOf(type), shard.global_shape, offset, shape, nullptr},
                       .live = live,
                       .bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type)),
                       .unit = shard.unit,
                       .index = shard.index,
                       .tensor = tensor});
    };
    add(state.model, shard.name, shard.master, 0);
    for (size_t i = 0; i < shard.state.size(); ++i) {
      add(state.optim, "state." + shard.name + "." + states[i], shard.state[i], static_cast<int>(i) + 1);
    }
  }
  return state;
}

// Into the live state where it is in host memory, else into host copies of it.
Status ReadTensors(const std::vector<LiveTensor>& tensors,
                   const std::function<Status(const std::vector<checkpoint::TensorSlice>&)>& read) {
  std::vector<checkpoint::TensorSlice> slices;
  std::vector<at::Tensor> hosts;
  for (const LiveTensor& tensor : tensors) {
    hosts.push_back(tensor.live.to(at::kCPU).contiguous());
    slices.push_back(tensor.slice);
    slices.back().data = hosts.back().data_ptr();
  }
  if (Status done = read(slices); !done) return done;
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].data_ptr() != tensors[i].live.data_ptr()) tensors[i].live.copy_(hosts[i]);
  }
  return {};
}

}  // namespace

LiveState LiveStateOf(engine::Engine& engine) { return StateOf(engine.Shards(), engine.options()); }

Status ReadInto(engine::Engine& engine, bool weights_only,
                const std::function<Status(const std::vector<checkpoint::TensorSlice>& slices)>& read) {
  const auto read_shards = [&](const std::vector<engine::ShardView>& shards) {
    LiveState state = StateOf(shards, engine.options());
    std::vector<LiveTensor> tensors = std::move(state.model);
    if (!weights_only) tensors.insert(tensors.end(), state.optim.begin(), state.optim.end());
    return ReadTensors(tensors, read);
  };
  if (engine.state_in_memory()) return read_shards(engine.Shards());
  Status status;
  engine.VisitShards(true, [&](int, const std::vector<engine::ShardView>& shards) {
    if (status) status = read_shards(shards);
  });
  return status;
}

}  // namespace trainyard::loop
