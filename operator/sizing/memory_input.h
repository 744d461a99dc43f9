// What the memory of one GPU depends on: the model, how it is spread, the numbers it is kept in, the engine that runs
// it. Plain values; the bytes are in memory_at_rest.h, memory_in_step.h, memory_host.h and, all together, memory.h.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// What is kept of a block between forward and backward. kSelective: what attention and matrix products gave, of the
// latter half (torchtitan's per-operation policy) or all (our trainer); kFull: the block's input only, everything else
// is computed again.
enum class Checkpointing { kNone, kSelective, kFull };

// kEager: plain operations, each keeping its operands. kFused: norms, rotary positions and SwiGLU keep their inputs
// only, as compiled programs and our trainer do.
enum class Kernels { kEager, kFused };

// kAdamW: two moments in the type of Recipe::optimizer. kAdamW8bit: both moments in 8 bits with a scale per block of
// 256. kAdafactor: factored second moment, no first one. kSgd: one moment, or none without momentum.
enum class Optimizer { kAdamW, kAdamW8bit, kAdafactor, kSgd };

// Low-rank adapters on frozen weights. kLora: the base in BF16; kQLora: the linear layers of the blocks in NF4 with
// double quantisation, everything else in BF16.
enum class AdapterType { kNone, kLora, kQLora };
struct Adapter {
  AdapterType type = AdapterType::kNone;
  int64_t rank = 16;
  // Last words of the names of the matrices that get one, such as q_proj; empty: every matrix of the blocks.
  std::vector<std::string> targets;
};

// Where master copy, moments and accumulated gradients live. kCpu: in host memory, and the update runs there. kNvme:
// master copy and moments on disk, read and written once per step, the gradients in host memory.
enum class Offload { kNone, kCpu, kNvme };

// Factors that measured runs put on groups of terms, each between 0.5 and 2 (Bounded).
struct Corrections {
  double states = 1;       // weights, gradients, master, optimizer
  double activations = 1;  // activations and logits
  double buffers = 1;
  double overhead = 1;
};
// The same with every factor inside its bounds; what is not a number counts as 1.
Corrections Bounded(const Corrections& corrections);

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
  bool head_in_forward = false;  // the head's gradients are made in forward, chunk by chunk, and kept
  bool keeps_products = false;   // selective checkpointing keeps all matrix products, not half of them
  // Offload of our trainer: the GPU keeps gradients, FSDP's weights come from what the host holds of them, on one GPU
  // too, and a window of a few blocks is what NVMe needs of host memory.
  bool streams_weights = false;
  bool keeps_adapter_outputs = true;  // false: what is between an adapter's matrices is made again in backward
  bool row_statistics = false;        // count the fp32 numbers that norms (1) and attention (heads) keep per token
  double fragmentation = 1.06;        // what a caching allocator loses; fitted on published peaks
  double context_bytes = 0.75 * 1024 * 1024 * 1024;      // driver context and kernels
  double communicator_bytes = 1.5 * 1024 * 1024 * 1024;  // collective library and its buffers, when N > 1
};
// Where a program runs: on a GPU, or as a CPU process of `trainyard run`.
enum class Machine { kGpu, kCpu };
// A user's own program, of which nothing is known: eager.
EngineTraits EagerTraits(api::Precision precision, Machine machine);
// Our trainer: its own norms, rotary positions, SwiGLU and chunked loss.
EngineTraits TrainerTraits(api::Precision precision, Machine machine);

struct TensorSums;

struct MemoryInput {
  ModelShape shape;
  api::Strategy strategy = api::Strategy::kDdp;  // kAuto counts as kDdp
  int64_t ranks = 1;                             // all data-parallel ranks
  int64_t shard_ranks = 0;        // state is cut over so many of them and replicated over the rest (HSDP); 0: all
  int64_t tensor_parallel = 1;    // GPUs that split every matrix, with sequence parallelism; besides `ranks`
  int64_t pipeline_parallel = 1;  // GPUs that split the layers, one forward one backward; besides `ranks`
  int64_t micro_batches = 0;      // of one rank and step; bounds what a pipeline holds; 0: at least as many as stages
  int64_t micro_batch = 1;
  int64_t sequence = 4096;
  Checkpointing checkpointing = Checkpointing::kNone;
  bool flash_attention = true;  // false: the scores of every pair of tokens are kept
  Recipe recipe;
  Optimizer optimizer = Optimizer::kAdamW;
  bool momentum = true;  // of kSgd
  Adapter adapter;
  Offload offload = Offload::kNone;
  bool reduce_once = false;         // gradients are kept whole until the last micro-batch, and reduced then
  bool offload_parameters = false;  // weights too: they visit the GPU block by block
  EngineTraits engine;
  Corrections corrections;
  std::shared_ptr<const TensorSums> sums;  // of shape and adapter, see Prepare; empty: made again in every call

  int64_t ShardRanks() const { return shard_ranks > 0 ? shard_ranks : ranks; }
  int64_t Replicas() const { return ranks / ShardRanks(); }
};

// Counts the tensors of `in.shape` and `in.adapter` once, for whoever asks for many estimates of them; again whenever
// one of the two changes.
void Prepare(MemoryInput& in);

// 0 DDP, 1-3 the ZeRO stages, 3 is FSDP; 0 where the state is not cut at all, unless our trainer offloads under FSDP:
// the weights then come and go on one GPU too.
int StageOf(const MemoryInput& in);

// Errors: kInvalidArgument for sizes below one, shard_ranks that do not divide ranks, more pipeline stages than layers,
// heads that tensor_parallel does not divide, an adapter without a matrix or a rank.
Status Check(const MemoryInput& in);

}  // namespace trainyard::sizing
