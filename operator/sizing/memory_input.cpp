#include "operator/sizing/memory_input.h"

#include <algorithm>
#include <cmath>

#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {
namespace {

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

// Beyond anything that exists, so that no product of sizes loses its meaning.
constexpr int64_t kMostGpus = 100'000'000;

}  // namespace

Corrections Bounded(const Corrections& corrections) {
  auto bounded = [](double factor) { return std::isfinite(factor) ? std::clamp(factor, 0.5, 2.0) : 1.0; };
  return {.states = bounded(corrections.states),
          .activations = bounded(corrections.activations),
          .buffers = bounded(corrections.buffers),
          .overhead = bounded(corrections.overhead)};
}

Recipe Bf16Recipe() { return Recipe{}; }

Recipe Fp32Recipe() { return Recipe{.weights = 4, .gradients = 4, .master = 0, .optimizer = 8, .compute = 4}; }

Recipe RecipeOf(api::Precision precision) { return precision == api::Precision::kFp32 ? Fp32Recipe() : Bf16Recipe(); }

EngineTraits EagerTraits(api::Precision precision, Machine machine) {
  EngineTraits engine;
  // In FP32 the logits need no second copy: logits 4, log-softmax 4, gradient 4.
  if (precision == api::Precision::kFp32) engine.logit_bytes = 12;
  if (machine == Machine::kCpu) {
    // A process that has loaded LibTorch for CPU, and Gloo's buffers.
    engine.context_bytes = 192.0 * 1024 * 1024;
    engine.communicator_bytes = 32.0 * 1024 * 1024;
  }
  return engine;
}

EngineTraits TrainerTraits(api::Precision precision, Machine machine) {
  EngineTraits engine = EagerTraits(precision, machine);
  engine.kernels = Kernels::kFused;
  engine.most_logits = 1 << 22;  // the chunk of trainer/model/ops.cpp
  engine.head_in_forward = true;
  engine.keeps_products = true;
  engine.row_statistics = true;
  engine.keeps_adapter_outputs = false;
  engine.streams_weights = true;
  // Logits and log-softmax in fp32, one of which becomes the gradient. On a CPU all three are one tensor, beside which
  // stands in BF16 what the product gave or what the next one takes.
  engine.logit_bytes = 8;
  if (machine == Machine::kCpu) engine.logit_bytes = precision == api::Precision::kFp32 ? 4 : 6;
  return engine;
}

void Prepare(MemoryInput& in) {
  in.sums.reset();
  in.sums = SumsOf(in);
}

int StageOf(const MemoryInput& in) {
  const bool streams = in.offload != Offload::kNone && in.engine.streams_weights;
  if (in.ShardRanks() <= 1 && !(streams && in.strategy == api::Strategy::kFsdp)) return 0;
  switch (in.strategy) {
    case api::Strategy::kZero1:
      return 1;
    case api::Strategy::kZero2:
      return 2;
    case api::Strategy::kFsdp:
    case api::Strategy::kHsdp:
      return 3;
    case api::Strategy::kAuto:
    case api::Strategy::kDdp:
      return 0;
  }
  return 0;
}

Status Check(const MemoryInput& in) {
  if (in.shape.layers < 1 || in.shape.hidden < 1 || in.shape.heads < 1 || in.shape.parameters < 1) {
    return Bad("a model needs at least one layer, one attention head, a hidden size and parameters");
  }
  if (in.micro_batch < 1 || in.sequence < 1) return Bad("micro batch and sequence length must be at least 1");
  if (in.ranks < 1 || in.ranks > kMostGpus) return Bad("the number of ranks must be between 1 and 100M");
  if (in.shard_ranks < 0 || (in.shard_ranks > 0 && in.ranks % in.shard_ranks != 0)) {
    return Bad("shards over " + std::to_string(in.shard_ranks) + " ranks do not divide the " +
               std::to_string(in.ranks) + " ranks into equal replicas");
  }
  if (in.tensor_parallel < 1 || in.shape.heads % in.tensor_parallel != 0) {
    return Bad("tensor parallel degree " + std::to_string(in.tensor_parallel) + " does not divide the " +
               std::to_string(in.shape.heads) + " attention heads");
  }
  if (in.pipeline_parallel < 1 || in.pipeline_parallel > in.shape.layers) {
    return Bad("pipeline parallel degree " + std::to_string(in.pipeline_parallel) + " is not between 1 and the " +
               std::to_string(in.shape.layers) + " layers");
  }
  if (in.adapter.type != AdapterType::kNone) {
    if (in.adapter.rank < 1 || in.adapter.rank > in.shape.hidden) {
      return Bad("adapter rank " + std::to_string(in.adapter.rank) + " is not between 1 and the hidden size of " +
                 std::to_string(in.shape.hidden));
    }
    if (Status known = CheckTargets(in.shape, in.adapter.targets); !known) return known;
  }
  return {};
}

}  // namespace trainyard::sizing
