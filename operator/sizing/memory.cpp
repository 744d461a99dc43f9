#include "operator/sizing/memory.h"

#include <algorithm>
#include <cmath>

namespace trainyard::sizing {
namespace {

double P(const MemoryInput& in) { return static_cast<double>(in.shape.parameters); }
double Block(const MemoryInput& in) { return static_cast<double>(BlockParameters(in.shape)); }
double Root(const MemoryInput& in) { return static_cast<double>(RootParameters(in.shape)); }
double Ranks(const MemoryInput& in) { return static_cast<double>(in.ranks); }
double Tokens(const MemoryInput& in) { return static_cast<double>(in.micro_batch) * static_cast<double>(in.sequence); }

// ZeRO stage: what is sharded grows with it.
int Stage(api::Strategy strategy) {
  switch (strategy) {
    case api::Strategy::kZero1:
      return 1;
    case api::Strategy::kZero2:
      return 2;
    case api::Strategy::kFsdp:
      return 3;
    case api::Strategy::kAuto:
    case api::Strategy::kDdp:
      return 0;
  }
  return 0;
}

double Sharded(const MemoryInput& in, double bytes, int from_stage) {
  return Stage(in.strategy) >= from_stage ? bytes / Ranks(in) : bytes;
}

// e s b h: one hidden state of the micro batch.
double HiddenBytes(const MemoryInput& in) {
  return in.recipe.compute * Tokens(in) * static_cast<double>(in.shape.hidden);
}

// c under the checkpointing asked for, without the working set of a recomputed block.
double StoredFactor(const MemoryInput& in) {
  const double kv_share = static_cast<double>(in.shape.kv_heads) / static_cast<double>(in.shape.heads);
  const double ffn_ratio = static_cast<double>(in.shape.ffn) / static_cast<double>(in.shape.hidden);
  switch (in.checkpointing) {
    case Checkpointing::kNone:
      return SavedFactor(in.shape, in.engine.kernels);
    case Checkpointing::kSelective:
      return 2.5 + (1 + 2 * kv_share) / 2 + ffn_ratio;  // half of the matmul outputs, and attention's output
    case Checkpointing::kFull:
      return 1;
  }
  return 1;
}

}  // namespace

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
  // Log-softmax 4 and gradient 4 in fp32, and in BF16 the gradient once more for the matrix products.
  engine.logit_bytes = precision == api::Precision::kFp32 ? 8 : 10;
  return engine;
}

int64_t ReferenceStateBytes(int64_t parameters) { return 16 * parameters; }

int64_t CheckpointBytes(int64_t parameters) { return 12 * parameters; }

double WeightBytes(const MemoryInput& in) {
  const double bytes = in.recipe.weights * P(in);
  if (Stage(in.strategy) < 3) return bytes;
  // FSDP holds a shard: the master copy, or where there is none the weights themselves.
  return in.recipe.master > 0 ? 0 : bytes / Ranks(in);
}

double GradientBytes(const MemoryInput& in) { return Sharded(in, in.recipe.gradients * P(in), 2); }

double MasterBytes(const MemoryInput& in) { return Sharded(in, in.recipe.master * P(in), 1); }

double OptimizerBytes(const MemoryInput& in) { return Sharded(in, in.recipe.optimizer * P(in), 1); }

double SavedFactor(const ModelShape& shape, Kernels kernels) {
  const double kv_share = static_cast<double>(shape.kv_heads) / static_cast<double>(shape.heads);
  const double ffn_ratio = static_cast<double>(shape.ffn) / static_cast<double>(shape.hidden);
  if (shape.block == BlockKind::kGpt2) return 7 + 2 * ffn_ratio;  // 15 at the usual f = 4 h, no dropout
  return kernels == Kernels::kFused ? 6 + 2 * kv_share + 3 * ffn_ratio : 10 + 2 * kv_share + 4 * ffn_ratio;
}

double LayerActivationBytes(const MemoryInput& in) {
  return SavedFactor(in.shape, in.engine.kernels) * HiddenBytes(in);
}

double ActivationBytes(const MemoryInput& in) {
  return static_cast<double>(in.shape.layers) * StoredFactor(in) * HiddenBytes(in);
}

double LogitBytes(const MemoryInput& in) {
  const double vocab = static_cast<double>(in.shape.vocab);
  double logits = Tokens(in) * vocab / in.engine.logit_chunks;
  // A chunk has at least 64 tokens.
  if (in.engine.most_logits > 0) logits = std::min(logits, std::max(in.engine.most_logits, 64 * vocab));
  const double kept =
      in.engine.head_in_forward ? HiddenBytes(in) + 4 * vocab * static_cast<double>(in.shape.hidden) : 0;
  return logits * in.engine.logit_bytes + kept;
}

double GatheredBytes(const MemoryInput& in) {
  if (Stage(in.strategy) < 3) return 0;
  const double e = in.recipe.compute;
  if (in.ranks > 1) return e * Root(in) + in.engine.gathered_blocks * e * Block(in);
  // One rank gathers nothing; with a master copy it still casts the root and two blocks.
  return in.recipe.master > 0 ? e * Root(in) + 2 * e * Block(in) : 0;
}

double ReduceBytes(const MemoryInput& in) {
  if (in.ranks == 1) return 0;
  return 2 * in.engine.reduce_bytes * Block(in) + in.engine.reduce_bytes * Root(in);
}

double BackwardExtraBytes(const MemoryInput& in) {
  const double forward = ActivationBytes(in) + LogitBytes(in);
  const double backward = LayerActivationBytes(in) + 2 * in.recipe.compute * Block(in) + in.recipe.compute * Root(in);
  return std::max(0.0, backward - forward);
}

double BufferBytes(const MemoryInput& in) { return GatheredBytes(in) + ReduceBytes(in) + BackwardExtraBytes(in); }

double AllocatedPeakBytes(const MemoryInput& in) {
  const double states = WeightBytes(in) + MasterBytes(in) + OptimizerBytes(in);
  const double gathered = GatheredBytes(in);
  const double per_number = in.recipe.compute + in.engine.reduce_bytes;
  const double reducing = in.ranks > 1 ? 2 * per_number * Block(in) + per_number * Root(in) : 0;
  const double end_of_forward = states + gathered + ActivationBytes(in) + LogitBytes(in);
  const double end_of_backward = states + GradientBytes(in) + gathered + reducing + LayerActivationBytes(in);
  return std::max(end_of_forward, end_of_backward);
}

PerGpuBytes Estimate(const MemoryInput& in, int64_t capacity_bytes) {
  // Capped, so that no sum of terms leaves 63 bits, whatever was asked for.
  auto whole = [](double bytes) { return static_cast<int64_t>(std::ceil(std::min(bytes, 1e18))); };
  PerGpuBytes out;
  out.weights = whole(WeightBytes(in));
  out.gradients = whole(GradientBytes(in));
  out.master = whole(MasterBytes(in));
  out.optimizer = whole(OptimizerBytes(in));
  out.activations = whole(ActivationBytes(in));
  out.logits = whole(LogitBytes(in));
  out.buffers = whole(BufferBytes(in));
  const int64_t tensors =
      out.weights + out.gradients + out.master + out.optimizer + out.activations + out.logits + out.buffers;
  out.overhead = whole((in.engine.fragmentation - 1) * static_cast<double>(tensors) + in.engine.context_bytes +
                       (in.ranks > 1 ? in.engine.communicator_bytes : 0));
  out.total = tensors + out.overhead;
  out.capacity = capacity_bytes;
  return out;
}

int64_t UsableBytes(int64_t memory_mib) { return memory_mib * 1024 * 1024 / 100 * 95; }

}  // namespace trainyard::sizing
