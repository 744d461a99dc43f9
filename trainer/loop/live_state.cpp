#include "trainer/loop/live_state.h"

#include <algorithm>
#include <string>
#include <utility>

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
    case at::kByte:
      return "U8";
    default:
      return "F32";
  }
}

// Rows of a tensor of the engine.
struct Box {
  std::string name;
  at::ScalarType type;  // in memory, and in a checkpoint
  const std::vector<int64_t>& global_shape;
  engine::RowRange rows;
  at::Tensor live;
  int tensor = 0;  // for Engine::CopyShard
};

void Add(std::vector<LiveTensor>& group, const engine::ShardView& shard, Box box) {
  if (box.rows.size() == 0) return;
  std::vector<int64_t> offset(box.global_shape.size(), 0), shape = box.global_shape;
  offset[0] = box.rows.lo;
  shape[0] = box.rows.size();
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(box.type));
  group.push_back({.slice = {std::move(box.name), DtypeOf(box.type), box.global_shape, offset, shape, nullptr},
                   .live = std::move(box.live),
                   .bytes = bytes,
                   .unit = shard.unit,
                   .index = shard.index,
                   .tensor = box.tensor});
}

bool Frozen(const engine::Engine& engine, const engine::ShardView& shard) {
  return engine.unit(shard.unit).params[static_cast<size_t>(shard.index)].frozen;
}

// Of the frozen parameters or of the others.
LiveState StateOf(const engine::Engine& engine, const std::vector<engine::ShardView>& shards, bool frozen) {
  const engine::EngineOptions& options = engine.options();
  LiveState state;
  const at::ScalarType on_disk = options.compute_dtype == at::kDouble ? at::kDouble : at::kFloat;
  for (const engine::ShardView& shard : shards) {
    if (Frozen(engine, shard) != frozen) continue;
    const bool nf4 = shard.master.defined() && shard.master.scalar_type() == at::kByte;
    const at::ScalarType type = nf4 ? at::kFloat : shard.master.defined() ? shard.master.scalar_type() : on_disk;
    Add(nf4 ? state.nf4 : state.model, shard, {shard.name, type, shard.global_shape, shard.rows, shard.master, 0});
    for (size_t i = 0; i < shard.state.size(); ++i) {
      const engine::StateBox& box = shard.state_box[i];
      Add(state.optim, shard,
          {"state." + shard.name + "." + box.name, box.type, box.global_shape, box.rows, shard.state[i],
           static_cast<int>(i) + 1});
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
                                                   ", which NF4 cannot hold: set model.adapter.quantizeBase to "
                                                   "None, or mend the model");
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

LiveState LiveStateOf(engine::Engine& engine) { return StateOf(engine, engine.Shards(), /*frozen=*/false); }

Status ReadInto(engine::Engine& engine, Part part,
                const std::function<Status(const std::vector<checkpoint::TensorSlice>& slices)>& read) {
  const auto read_shards = [&](const std::vector<engine::ShardView>& shards) {
    LiveState state = StateOf(engine, shards, part == Part::kFrozen);
    std::vector<LiveTensor> tensors = std::move(state.model);
    if (part == Part::kTrained) tensors.insert(tensors.end(), state.optim.begin(), state.optim.end());
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
