// Bytes on one GPU, one function per term. Symbols, as in docs/sizing.md: P parameters, P_b of one block, P_r of the
// root, N ranks that share a state, b micro batch, s sequence, h hidden, e bytes of a computed number. All results are
// bytes. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/api/training_job.h"
#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// What is kept of a block between forward and backward. kSelective: matmul outputs by a per-operation policy; kFull:
// the block's input only, everything else is computed again.
enum class Checkpointing { kNone, kSelective, kFull };

// kEager: plain operations, each keeping its operands. kFused: norms, rotary positions and SwiGLU keep their inputs
// only, as compiled programs and our trainer do.
enum class Kernels { kEager, kFused };

// Bytes per parameter before any sharding, and of one computed number.
struct Recipe {
  double weights = 2;    // what the forward pass reads
  double gradients = 4;  // accumulated
  double master = 4;     // 0: weights and master are one
  double optimizer = 8;  // two fp32 moments
  double compute = 2;    // e
};
Recipe Bf16Recipe();  // 2 + 4 + 4 + 8
Recipe Fp32Recipe();  // 4 + 4 + 0 + 8
Recipe RecipeOf(api::Precision precision);

// How an engine works, as far as its memory depends on it. The defaults are a plain eager program in BF16 on a GPU.
struct EngineTraits {
  Kernels kernels = Kernels::kEager;
  double gathered_blocks = 4;    // u: gathered blocks alive at once, copy-out buffers counted (2 with in-place gather)
  double reduce_bytes = 4;       // rho: bytes per gradient number while it is reduced
  double logit_bytes = 14;       // q: bf16 2, fp32 4, log-softmax 4, gradient 4; fused kernels 10
  double logit_chunks = 1;       // the loss works through the tokens in so many chunks
  double most_logits = 0;        // or: no more logits than this alive at once; 0: no bound
  bool head_in_forward = false;  // the head's gradients are made in forward and kept
  double fragmentation = 1.06;   // what a caching allocator loses; fitted on published peaks
  double context_bytes = 0.75 * 1024 * 1024 * 1024;      // driver context and kernels
  double communicator_bytes = 1.5 * 1024 * 1024 * 1024;  // collective library and its buffers, when N > 1
};
// Where a program runs: on a GPU, or as a CPU process of `trainyard run`.
enum class Machine { kGpu, kCpu };
// A user's own program, of which nothing is known: eager.
EngineTraits EagerTraits(api::Precision precision, Machine machine);
// Our trainer: its own norms, rotary positions, SwiGLU and chunked loss.
EngineTraits TrainerTraits(api::Precision precision, Machine machine);

struct MemoryInput {
  ModelShape shape;
  api::Strategy strategy = api::Strategy::kDdp;  // kAuto counts as kDdp
  int64_t ranks = 1;
  int64_t micro_batch = 1;
  int64_t sequence = 4096;
  Checkpointing checkpointing = Checkpointing::kNone;
  Recipe recipe;
  EngineTraits engine;
};

// The reference rule of thumb, all ranks together: 16 P = 2 weights + 2 gradients + 4 master + 8 Adam (ZeRO,
// section 3.1).
int64_t ReferenceStateBytes(int64_t parameters);
// On disk: master and both moments in fp32, 12 P.
int64_t CheckpointBytes(int64_t parameters);

// ---- at rest ---------------------------------------------------------------------------------------------------
double WeightBytes(const MemoryInput& in);
double GradientBytes(const MemoryInput& in);
double MasterBytes(const MemoryInput& in);
double OptimizerBytes(const MemoryInput& in);

// ---- during a step ---------------------------------------------------------------------------------------------
double SavedFactor(const ModelShape& shape, Kernels kernels);  // c without checkpointing: saved bytes / (e s b h)
double LayerActivationBytes(const MemoryInput& in);            // A_1, one block without checkpointing
double ActivationBytes(const MemoryInput& in);                 // all blocks, under the checkpointing asked for
double LogitBytes(const MemoryInput& in);
double GatheredBytes(const MemoryInput& in);       // unsharded parameters beyond WeightBytes
double ReduceBytes(const MemoryInput& in);         // gradients on their way through a reduction
double BackwardExtraBytes(const MemoryInput& in);  // what the last backward moment needs beyond the forward peak
double BufferBytes(const MemoryInput& in);         // gathered + reduce + backward extra
// Peak of the allocated bytes (what an allocator calls "max allocated"), fragmentation and driver excluded.
double AllocatedPeakBytes(const MemoryInput& in);

// One GPU, term by term; `total` is the sum of the terms, and it fits when total <= capacity.
struct PerGpuBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t master = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t logits = 0;
  int64_t buffers = 0;
  int64_t overhead = 0;  // fragmentation, driver context, communicators
  int64_t total = 0;
  int64_t capacity = 0;  // usable: what the label says less the reserve

  bool Fits() const { return total <= capacity; }
};
PerGpuBytes Estimate(const MemoryInput& in, int64_t capacity_bytes);

// 95 % of what the node's label says: the rest is kept back for what no formula knows.
int64_t UsableBytes(int64_t memory_mib);

}  // namespace trainyard::sizing
