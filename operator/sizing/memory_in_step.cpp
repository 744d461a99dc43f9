#include "operator/sizing/memory_in_step.h"

#include <algorithm>

#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {
namespace {

double Tokens(const MemoryInput& in) { return static_cast<double>(in.micro_batch) * static_cast<double>(in.sequence); }
double TensorParallel(const MemoryInput& in) { return static_cast<double>(std::max<int64_t>(1, in.tensor_parallel)); }

double BlockHere(const MemoryInput& in, const TensorSums& sums) { return sums.block / TensorParallel(in); }
double RootHere(const MemoryInput& in, const TensorSums& sums) {
  return (in.pipeline_parallel > 1 ? sums.larger_end : sums.root) / TensorParallel(in);
}
double TrainedBlockHere(const MemoryInput& in, const TensorSums& sums) {
  return sums.trained_block / TensorParallel(in);
}
double TrainedRootHere(const MemoryInput& in, const TensorSums& sums) {
  return sums.trained_root > 0 ? RootHere(in, sums) : 0;
}

// e s b h: one hidden state of the micro batch; sequence parallelism cuts it.
double HiddenBytes(const MemoryInput& in) {
  return in.recipe.compute * Tokens(in) * static_cast<double>(in.shape.hidden) / TensorParallel(in);
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

double ScoreBytes(const MemoryInput& in) {
  if (in.flash_attention) return 0;
  return 2.5 * in.recipe.compute * static_cast<double>(in.shape.heads) * static_cast<double>(in.sequence) * Tokens(in) /
         TensorParallel(in);
}

// Between the two matrices of each adapter, kept for the gradient of the second.
double AdapterOutputBytes(const MemoryInput& in, const TensorSums& sums) {
  return in.recipe.compute * Tokens(in) * sums.adapter_outputs;
}

double LayerActivations(const MemoryInput& in, const TensorSums& sums) {
  return SavedFactor(in.shape, in.engine.kernels) * HiddenBytes(in) + ScoreBytes(in) + AdapterOutputBytes(in, sums);
}

double StoredPerLayer(const MemoryInput& in, const TensorSums& sums) {
  double bytes = StoredFactor(in) * HiddenBytes(in);
  // Recomputed with the block: the scores under either checkpointing, the adapters under full.
  if (in.checkpointing == Checkpointing::kNone) bytes += ScoreBytes(in);
  if (in.checkpointing != Checkpointing::kFull) bytes += AdapterOutputBytes(in, sums);
  return bytes;
}

double InFlight(const MemoryInput& in) {
  if (in.pipeline_parallel <= 1) return 1;
  return static_cast<double>(in.micro_batches > 0 ? std::min(in.pipeline_parallel, in.micro_batches)
                                                  : in.pipeline_parallel);
}

double Activations(const MemoryInput& in, const TensorSums& sums) {
  return InFlight(in) * static_cast<double>(LayersHere(in)) * StoredPerLayer(in, sums);
}

double Logits(const MemoryInput& in, const TensorSums& sums) {
  const double vocab = static_cast<double>(in.shape.vocab);
  const double head = sums.trained_root > 0 ? vocab * static_cast<double>(in.shape.hidden) / TensorParallel(in) : 0;
  double logits = Tokens(in) * vocab / in.engine.logit_chunks;
  // A chunk has at least 64 tokens.
  if (in.engine.most_logits > 0) logits = std::min(logits, std::max(in.engine.most_logits, 64 * vocab));
  const double kept = in.engine.head_in_forward ? HiddenBytes(in) + 4 * head : 0;
  const double bytes = logits * in.engine.logit_bytes / TensorParallel(in) + kept;
  const double held_by_first = (InFlight(in) - 1) * static_cast<double>(LayersHere(in)) * StoredPerLayer(in, sums);
  return std::max(0.0, bytes - held_by_first);
}

double Gathered(const MemoryInput& in, const TensorSums& sums) {
  const double e = in.recipe.compute;
  const bool quantised = in.adapter.type == AdapterType::kQLora;
  const double per_number = quantised ? kNf4Bits / 8 : e;
  double bytes = 0;
  if (StageOf(in) == 3) {
    bytes = e * RootHere(in, sums) + in.engine.gathered_blocks * per_number * BlockHere(in, sums);
  } else if (in.offload_parameters && in.offload != Offload::kNone) {
    bytes = e * RootHere(in, sums) + 2 * per_number * BlockHere(in, sums);  // the current block and the next one
  }
  if (quantised) bytes += e * sums.largest_matrix / TensorParallel(in);
  return bytes;
}

double Reducing(const MemoryInput& in, const TensorSums& sums) {
  if (in.ranks == 1 && in.offload == Offload::kNone) return 0;
  const double rho = in.engine.reduce_bytes;
  double bytes = 2 * rho * TrainedBlockHere(in, sums) + rho * TrainedRootHere(in, sums);
  if (in.Replicas() > 1 && in.ShardRanks() > 1) {
    bytes += 2 * rho * TrainedBlockHere(in, sums) / static_cast<double>(in.ShardRanks());
  }
  return bytes;
}

double BackwardExtra(const MemoryInput& in, const TensorSums& sums) {
  const double forward = Activations(in, sums) + Logits(in, sums);
  const double e = in.recipe.compute;
  const double backward =
      LayerActivations(in, sums) + 2 * e * TrainedBlockHere(in, sums) + e * TrainedRootHere(in, sums);
  return std::max(0.0, backward - forward);
}

}  // namespace

double SavedFactor(const ModelShape& shape, Kernels kernels) {
  const double kv_share = static_cast<double>(shape.kv_heads) / static_cast<double>(shape.heads);
  const double ffn_ratio = static_cast<double>(shape.ffn) / static_cast<double>(shape.hidden);
  if (shape.block == BlockKind::kGpt2) return 7 + 2 * ffn_ratio;  // 15 at the usual f = 4 h, no dropout
  return kernels == Kernels::kFused ? 6 + 2 * kv_share + 3 * ffn_ratio : 10 + 2 * kv_share + 4 * ffn_ratio;
}

double LayerActivationBytes(const MemoryInput& in) { return LayerActivations(in, *SumsOf(in)); }
double ActivationBytes(const MemoryInput& in) { return Activations(in, *SumsOf(in)); }
double LogitBytes(const MemoryInput& in) { return Logits(in, *SumsOf(in)); }
double GatheredBytes(const MemoryInput& in) { return Gathered(in, *SumsOf(in)); }
double ReduceBytes(const MemoryInput& in) { return Reducing(in, *SumsOf(in)); }
double BackwardExtraBytes(const MemoryInput& in) { return BackwardExtra(in, *SumsOf(in)); }

double BufferBytes(const MemoryInput& in) {
  const auto sums = SumsOf(in);
  return Gathered(in, *sums) + Reducing(in, *sums) + BackwardExtra(in, *sums);
}

double PipelineBubble(int64_t stages, int64_t micro_batches) {
  if (stages <= 1) return 0;
  const double p = static_cast<double>(stages);
  return (p - 1) / (static_cast<double>(std::max<int64_t>(1, micro_batches)) + p - 1);
}

double AllocatedPeakBytes(const MemoryInput& in) {
  const auto sums = SumsOf(in);
  const StateBytes state = StateOnGpu(in);
  const double held = state.weights + state.master + state.optimizer + Gathered(in, *sums);
  const double per_number = in.recipe.compute + in.engine.reduce_bytes;
  const double reducing =
      in.ranks > 1 ? per_number * (2 * TrainedBlockHere(in, *sums) + TrainedRootHere(in, *sums)) : 0;
  const double end_of_forward = held + Activations(in, *sums) + Logits(in, *sums);
  const double end_of_backward = held + state.gradients + reducing + LayerActivations(in, *sums);
  return std::max(end_of_forward, end_of_backward);
}

}  // namespace trainyard::sizing
