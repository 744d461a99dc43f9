#include "trainer/loop/live_state.h"

namespace trainyard::loop {
namespace {

// Frozen parameters are kept in the type that computes.
std::string DtypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return "F64";
    case at::kBFloat16:
      return "BF16";
    default:
      return "F32";
  }
}

}  // namespace

LiveState LiveStateOf(engine::Engine& engine) {
  LiveState state;
  const std::vector<const char*> states = optim::StateNames(engine.options().optimizer);
  for (const engine::ShardView& shard : engine.Shards()) {
    if (shard.rows.size() == 0) continue;
    std::vector<int64_t> offset(shard.global_shape.size(), 0);
    offset[0] = shard.rows.lo;
    std::vector<int64_t> shape = shard.global_shape;
    shape[0] = shard.rows.size();
    const auto add = [&](std::vector<LiveTensor>& group, const std::string& name, const at::Tensor& live) {
      group.push_back({{name, DtypeOf(live), shard.global_shape, offset, shape, nullptr}, live, shard.unit});
    };
    add(state.model, shard.name, shard.master);
    for (size_t i = 0; i < shard.state.size(); ++i) {
      add(state.optim, "state." + shard.name + "." + states[i], shard.state[i]);
    }
  }
  return state;
}

}  // namespace trainyard::loop
