#include "operator/sizing/memory_at_rest.h"

#include "operator/sizing/memory_tensors.h"
#include "trainer/contract/packed.h"

namespace trainyard::sizing {
namespace {

using Tensor = TensorSums::Tensor;

double Elements(const MemoryInput& in, const std::vector<Tensor>& tensors, int64_t shards) {
  double n = 0;
  VisitHeld(in, tensors, shards, [&](int64_t rows, int64_t row_size, double copies, const Tensor&) {
    n += static_cast<double>(rows) * static_cast<double>(row_size) * copies;
  });
  return n;
}

// The stated number of parameters where the shape is a stand-in for it, and a share of it; adapters are counted as they
// are. No rounding where the two numbers agree or nothing is cut.
double Stated(const MemoryInput& in, const TensorSums& sums, double counted) {
  const double stated = static_cast<double>(in.shape.parameters);
  if (!sums.adapters.empty() || StatedOverCounted(in, sums) == 1) return counted;
  return stated * (counted / sums.parameters);
}

double Trained(const MemoryInput& in, const TensorSums& sums, int64_t shards) {
  const bool whole = shards == 1 && in.tensor_parallel == 1 && in.pipeline_parallel == 1;
  return Stated(in, sums, whole ? sums.trained : Elements(in, sums.Trained(), shards));
}

double FrozenBytes(const MemoryInput& in, const TensorSums& sums, int64_t shards) {
  double bytes = 0;
  VisitHeld(in, sums.base, shards, [&](int64_t rows, int64_t row_size, double copies, const Tensor& t) {
    const bool quantised = in.adapter.type == AdapterType::kQLora && t.in_block && t.matrix;
    const double row = quantised ? static_cast<double>(contract::Nf4RowBytes(row_size))
                                 : static_cast<double>(row_size) * in.recipe.weights;
    bytes += static_cast<double>(rows) * row * copies;
  });
  return bytes * StatedOverCounted(in, sums);
}

// Of some rows of a tensor; the whole tensor decides, so that cutting it never costs more.
double EightBitStates(int64_t rows, int64_t row_size, const Tensor& whole) {
  const bool packed = contract::MomentsInEightBits(whole.matrix ? 2 : 1, whole.rows * whole.row_size);
  const int64_t row = packed ? 2 * contract::MomentRowBytes(row_size) : 8 * row_size;
  return static_cast<double>(rows) * static_cast<double>(row);
}

double OptimizerStates(const MemoryInput& in, const TensorSums& sums, int64_t shards, double trained) {
  double bytes = 0;
  switch (in.optimizer) {
    case Optimizer::kAdamW:
      return in.recipe.optimizer * trained;
    case Optimizer::kSgd:
      return in.momentum ? in.recipe.optimizer / 2 * trained : 0;
    case Optimizer::kAdamW8bit:
      VisitHeld(in, sums.Trained(), shards, [&](int64_t rows, int64_t row_size, double copies, const Tensor& t) {
        bytes += EightBitStates(rows, row_size, t) * copies;
      });
      break;
    case Optimizer::kAdafactor:
      VisitHeld(in, sums.Trained(), shards, [&](int64_t rows, int64_t row_size, double copies, const Tensor& t) {
        bytes += 4.0 * static_cast<double>(rows + (t.matrix ? row_size : 0)) * copies;
      });
      break;
  }
  return sums.adapters.empty() ? bytes * StatedOverCounted(in, sums) : bytes;
}

// All of it, wherever it lives.
StateBytes State(const MemoryInput& in) {
  const auto sums = SumsOf(in);
  const int stage = StageOf(in);
  const int64_t n = in.ShardRanks();
  const bool adapted = in.adapter.type != AdapterType::kNone;
  const double full = Trained(in, *sums, 1);
  const double shard = stage >= 1 ? Trained(in, *sums, n) : full;
  StateBytes s;
  // FSDP holds a shard: the master copy, or where there is none the weights themselves.
  if (stage < 3) {
    s.weights = in.recipe.weights * full;
  } else if (in.recipe.master <= 0) {
    s.weights = in.recipe.weights * shard;
  }
  if (adapted) s.weights += FrozenBytes(in, *sums, stage == 3 ? n : 1);
  s.gradients = in.recipe.gradients * (stage >= 2 && !in.reduce_once ? shard : full);
  s.master = in.recipe.master * shard;
  s.optimizer = OptimizerStates(in, *sums, stage >= 1 ? n : 1, shard);
  return s;
}

}  // namespace

double TrainedElements(const MemoryInput& in, int64_t shards) { return Trained(in, *SumsOf(in), shards); }

StateBytes StateOnGpu(const MemoryInput& in) {
  StateBytes s = State(in);
  if (in.offload == Offload::kNone) return s;
  if (in.offload_parameters) s.weights = 0;
  if (in.engine.streams_weights && StageOf(in) == 3) s.weights = 0;
  if (!in.engine.streams_weights) s.gradients = 0;
  s.master = s.optimizer = 0;
  return s;
}

StateBytes StateOffGpu(const MemoryInput& in) {
  if (in.offload == Offload::kNone) return {};
  StateBytes s = State(in);
  const double updated = TrainedElements(in, StageOf(in) >= 1 ? in.ShardRanks() : 1);
  // The host updates its own fp32 copy, also where the GPU's weights are fp32 already. But our trainer has no second
  // one on disk: in fp32 it updates the weights that stay in memory.
  if (s.master == 0 && !(in.engine.streams_weights && in.offload == Offload::kNvme)) s.master = 4 * updated;
  if (!in.offload_parameters) s.weights = 0;
  if (in.engine.streams_weights) {
    s.gradients = 0;
    // What FSDP gathers again and again: with NVMe weights in the type of the arithmetic stay in memory.
    if (StageOf(in) == 3 && in.offload == Offload::kNvme) s.weights = in.recipe.compute * updated;
    if (StageOf(in) == 3 && in.adapter.type != AdapterType::kNone) {
      s.weights += FrozenBytes(in, *SumsOf(in), in.ShardRanks());
    }
  }
  return s;
}

double GradientPaddingBytes(const MemoryInput& in) {
  if (StageOf(in) != 1) return 0;
  const double n = static_cast<double>(in.ShardRanks());
  return in.recipe.gradients * (n * TrainedElements(in, in.ShardRanks()) - TrainedElements(in, 1));
}

double WeightBytes(const MemoryInput& in) { return StateOnGpu(in).weights; }
double GradientBytes(const MemoryInput& in) { return StateOnGpu(in).gradients; }
double MasterBytes(const MemoryInput& in) { return StateOnGpu(in).master; }
double OptimizerBytes(const MemoryInput& in) { return StateOnGpu(in).optimizer; }

}  // namespace trainyard::sizing
