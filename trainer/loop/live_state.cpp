#include "trainer/loop/live_state.h"

#include <algorithm>
#include <string>

#include "trainer/quant/nf4_tensor.h"

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
    if (shard.master.defined() && shard.master.scalar_type() == at::kByte) {
      state.nf4.push_back({.slice = {shard.name, "F32", shard.global_shape, offset, shape, nullptr},
                           .live = shard.master,
                           .bytes = static_cast<int64_t>(shard.master.nbytes()),
                           .unit = shard.unit,
                           .index = shard.index});
      continue;
    }
    add(state.model, shard.name, shard.master, 0);
    for (size_t i = 0; i < shard.state.size(); ++i) {
      add(state.optim, "state." + shard.name + "." + states[i], shard.state[i], static_cast<int>(i) + 1);
    }
  }
  return state;
}

using Read = std::function<Status(const std::vector<checkpoint::TensorSlice>&)>;

// Some rows at a time, so that the numbers of a whole parameter are never there.
Status ReadNf4(const LiveTensor& tensor, const Read& read) {
  constexpr int64_t kBytes = 32 << 20;
  const int64_t rows = tensor.slice.shape[0], size = c10::multiply_integers(tensor.slice.shape) / rows;
  const int64_t block = std::clamp<int64_t>(kBytes / (size * static_cast<int64_t>(sizeof(float))), 1, rows);
  const at::Tensor numbers = at::empty({block, size}, at::kFloat);
  const at::Tensor packed = at::empty({block, tensor.live.size(1)}, at::kByte);
  at::NoGradGuard no_grad;
  for (int64_t lo = 0; lo < rows; lo += block) {
    const int64_t count = std::min(block, rows - lo);
    checkpoint::TensorSlice slice = tensor.slice;
    slice.offset[0] += lo;
    slice.shape[0] = count;
    slice.data = numbers.mutable_data_ptr();
    if (Status done = read({slice}); !done) return done;
    if (!quant::Nf4QuantiseInto(numbers.narrow(0, 0, count), packed.narrow(0, 0, count))) {
      return Fail(ErrorCode::kInvalidArgument, slice.name + " has a number that is not finite in rows " +
                                                   std::to_string(slice.offset[0]) + " to " +
                                                   std::to_string(slice.offset[0] + count - 1) +
                                                   ", which NF4 cannot hold: set adapter.quantizeBase to None, or "
                                                   "mend the model");
    }
    tensor.live.narrow(0, lo, count).copy_(packed.narrow(0, 0, count));
  }
  return {};
}

// Into the live state where it is in host memory, else into host copies of it.
Status ReadTensors(const std::vector<LiveTensor>& tensors, const Read& read) {
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
    Status status = ReadTensors(tensors, read);
    for (size_t i = 0; status && i < state.nf4.size(); ++i) status = ReadNf4(state.nf4[i], read);
    return status;
  };
  if (engine.state_in_memory()) return read_shards(engine.Shards());
  Status status;
  engine.VisitShards(true, [&](int, const std::vector<engine::ShardView>& shards) {
    if (status) status = read_shards(shards);
  });
  return status;
}

}  // namespace trainyard::loop
