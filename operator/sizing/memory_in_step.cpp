#include "operator/sizing/memory_in_step.h"

#include <algorithm>

#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {
namespace {

double Tokens(const MemoryInput& in) { return static_cast<double>(in.micro_batch) * static_cast<double>(in.sequence); }
double TensorParallel(const MemoryInput& in) { return static_cast<double>(std::max<int64_t>(1, in.tensor_parallel)); }

double RootHere(const MemoryInput& in, const TensorSums& sums) {
  return (in.pipeline_parallel > 1 ? sums.larger_end : sums.root) / TensorParallel(in);
}
double TrainedBlockHere(const MemoryInput& in, const TensorSums& sums) {
  return sums.trained_block / TensorParallel(in);
}
double TrainedRootHere(const MemoryInput& in, const TensorSums& sums) {
  return sums.trained_root > 0 ? RootHere(in, sums) : 0;
}

// One block as it is gathered: its adapters come with it.
double BlockBytes(const MemoryInput& in, const TensorSums& sums) {
  const double e = in.recipe.compute;
  const double added = in.adapter.type == AdapterType::kNone ? 0 : e * sums.trained_block;
  const double packed =
      in.adapter.type == AdapterType::kQLora ? sums.packed_matrices - e * sums.matrices : 0;  // less than in e bytes
  return (e * sums.block + packed + added) / TensorParallel(in);
}

// e s b h: one hidden state of the micro batch; sequence parallelism cuts it.
double HiddenBytes(const MemoryInput& in) {
  return in.recipe.compute * Tokens(in) * static_cast<double>(in.shape.hidden) / TensorParallel(in);
}

// Widths over h: of queries, of keys, and of the MLP that one token passes.
struct Ratios {
  double q, kv, ffn;
};
Ratios RatiosOf(const ModelShape& shape) {
  const double h = static_cast<double>(shape.hidden);
  return {static_cast<double>(shape.AttentionWidth()) / h, static_cast<double>(shape.KvWidth()) / h,
          static_cast<double>(shape.TokenFfn()) / h};
}

// c under the checkpointing asked for, without the working set of a recomputed block.
double StoredFactor(const MemoryInput& in) {
  switch (in.checkpointing) {
    case Checkpointing::kNone:
      return SavedFactor(in.shape, in.engine.kernels);
    case Checkpointing::kSelective: {
      const Ratios r = RatiosOf(in.shape);
      // Our trainer computes the inputs of the matrices after norms and after the MLP's activation again.
      if (in.engine.keeps_products) {
        const double normed_heads = in.shape.qk_norm ? r.q + r.kv : 0;
        return SavedFactor(in.shape, in.engine.kernels) - 2 - r.ffn - normed_heads;
      }
      return 2.5 + (r.q + 2 * r.kv) / 2 + r.ffn;  // half of the matmul outputs, and attention's output
    }
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

// One fp32 number per token for each of the two norms, for every head the log-sum-exp of flash attention, and for every
// head of queries and of keys their norm's where there is one.
double RowStatisticBytes(const MemoryInput& in) {
  if (!in.engine.row_statistics) return 0;
  const int64_t normed = in.shape.qk_norm ? in.shape.heads + in.shape.kv_heads : 0;
  return 4 * Tokens(in) * (2 + static_cast<double>(in.shape.heads + normed)) / TensorParallel(in);
}

// Between the two matrices of each adapter, kept for the gradient of the second.
double AdapterOutputBytes(const MemoryInput& in, const TensorSums& sums) {
  return in.engine.keeps_adapter_outputs ? in.recipe.compute * Tokens(in) * sums.adapter_outputs : 0;
}

double LayerActivations(const MemoryInput& in, const TensorSums& sums) {
  return SavedFactor(in.shape, in.engine.kernels) * HiddenBytes(in) + ScoreBytes(in) + RowStatisticBytes(in) +
         AdapterOutputBytes(in, sums);
}

double StoredPerLayer(const MemoryInput& in, const TensorSums& sums) {
  double bytes = StoredFactor(in) * HiddenBytes(in);
  // Recomputed with the block: the scores under either checkpointing, statistics and adapters under full.
  if (in.checkpointing == Checkpointing::kNone) bytes += ScoreBytes(in);
  if (in.checkpointing != Checkpointing::kFull) bytes += RowStatisticBytes(in);
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

// The loss of a program that makes the head's gradients in forward, chunk by chunk: the hidden states before and after
// the last norm, their gradient, the logits of a chunk, and the head's gradient, which of several chunks is summed in
// fp32: in BF16 beside the part that one chunk adds to it.
double HeadInForwardBytes(const MemoryInput& in, const TensorSums& sums, double all, double chunk) {
  const double head =
      sums.trained_root > 0 ? static_cast<double>(in.shape.vocab) * static_cast<double>(in.shape.hidden) : 0;
  const double sum = chunk < all && in.recipe.compute < 4 ? 4 : 0;
  return 3 * HiddenBytes(in) + (chunk * in.engine.logit_bytes + (in.recipe.compute + sum) * head) / TensorParallel(in);
}

double Logits(const MemoryInput& in, const TensorSums& sums) {
  const double vocab = static_cast<double>(in.shape.vocab);
  const double all = Tokens(in) * vocab / in.engine.logit_chunks;
  // A chunk has at least 64 tokens.
  const double chunk = in.engine.most_logits > 0 ? std::min(all, std::max(in.engine.most_logits, 64 * vocab)) : all;
  const double bytes = in.engine.head_in_forward ? HeadInForwardBytes(in, sums, all, chunk)
                                                 : chunk * in.engine.logit_bytes / TensorParallel(in);
  const double held_by_first = (InFlight(in) - 1) * static_cast<double>(LayersHere(in)) * StoredPerLayer(in, sums);
  return std::max(0.0, bytes - held_by_first);
}

double Gathered(const MemoryInput& in, const TensorSums& sums) {
  const double e = in.recipe.compute;
  const bool quantised = in.adapter.type == AdapterType::kQLora;
  double bytes = 0;
  if (StageOf(in) == 3) {
    bytes = e * RootHere(in, sums) + in.engine.gathered_blocks * BlockBytes(in, sums);
  } else if (in.offload_parameters && in.offload != Offload::kNone) {
    bytes = e * RootHere(in, sums) + 2 * BlockBytes(in, sums);  // the current block and the next one
  }
  if (quantised) bytes += e * sums.largest_matrix / TensorParallel(in);
  return bytes;
}

double Reducing(const MemoryInput& in, const TensorSums& sums) {
  if (in.ranks == 1 && (in.offload == Offload::kNone || in.engine.streams_weights)) return 0;
  const double rho = in.engine.reduce_bytes;
  double bytes = 2 * rho * TrainedBlockHere(in, sums) + rho * TrainedRootHere(in, sums);
  if (in.Replicas() > 1 && in.ShardRanks() > 1) {
    bytes += 2 * rho * TrainedBlockHere(in, sums) / static_cast<double>(in.ShardRanks());
  }
  return bytes;
}

// Where the logits are few, the backward pass of the last block's MLP is the peak, while nearly everything is still
// kept. Two hidden states, and of numbers of the MLP's width: the gradients of product, gate, up and of a step between
// (a plain MLP: of two), less the product that they have used up. Under checkpointing there is no product to use up,
// but gradients take each other's place; with full checkpointing the block is there besides.
double MlpBackwardBytes(const MemoryInput& in, const TensorSums& sums) {
  const double r = RatiosOf(in.shape).ffn;
  const double widths = !in.shape.gated ? 1 : in.checkpointing == Checkpointing::kNone ? 3 : 2;
  const double block = in.checkpointing == Checkpointing::kFull ? LayerActivations(in, sums) - r * HiddenBytes(in) : 0;
  return (widths * r + 2) * HiddenBytes(in) + block;
}

double BackwardExtra(const MemoryInput& in, const TensorSums& sums) {
  const double logits = Logits(in, sums);
  const double forward = Activations(in, sums) + logits;
  const double e = in.recipe.compute;
  const double backward =
      LayerActivations(in, sums) + 2 * e * TrainedBlockHere(in, sums) + e * TrainedRootHere(in, sums);
  double extra = std::max(0.0, backward - forward);
  if (in.engine.head_in_forward) extra = std::max(extra, MlpBackwardBytes(in, sums) - logits);
  return extra;
}

}  // namespace

double SavedFactor(const ModelShape& shape, Kernels kernels) {
  const Ratios r = RatiosOf(shape);
  // LayerNorm, biases, a plain MLP: 15 at the usual f = 4 h, no dropout.
  const bool fused = kernels == Kernels::kFused;
  // Its input, the normed input, q, k, v, attention's output, the middle, its norm, and the MLP before and after GELU.
  if (shape.block == BlockKind::kGpt2 && fused) return 8 + 2 * r.ffn;
  if (shape.block != BlockKind::kLlama) return 7 + 2 * r.ffn;
  const double mlp = shape.gated ? (fused ? 3 : 4) : 2;
  double c = (fused ? 4 : 8) + 2 * r.q + 2 * r.kv + mlp * r.ffn;
  if (shape.qk_norm) c += r.q + r.kv;                     // their inputs
  c += static_cast<double>(shape.norms - 2);              // the same of further norms
  c += 2 * static_cast<double>(shape.experts_per_token);  // each token once more for each expert, on its way in and out
  return c;
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
