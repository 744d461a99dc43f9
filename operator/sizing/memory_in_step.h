// Bytes that one GPU holds only while a step runs: activations, logits, gathered weights, gradients on their way.
// Symbols, as in docs/sizing.md: P_b parameters of a block, P_r of the root, L layers, b micro batch, s sequence, h
// hidden, f FFN width, a heads, e bytes of a computed number, N ranks. Thread-safety: pure functions.
#pragma once

#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

// c without checkpointing: saved bytes / (e s b h), of the widest layer. With κ = kv heads / heads and r = f / h: plain
// eager SwiGLU blocks 10 + 2κ + 4r, fused ones 6 + 2κ + 3r, GPT-2 and GPT-NeoX without dropout 7 + 2r, GPT-2 in our
// trainer 8 + 2r (operand lists of the operations). With experts r counts those that a token passes, and each takes and
// gives a hidden state: 2 more.
double SavedFactor(const ModelShape& shape, Kernels kernels);
// A_1 = c e s b h, one block without checkpointing. Without flash attention 2.5 e a s² b more for the scores, their
// softmax and its mask (Korthikanti et al., 2022, section 4: 5 a s² b bytes at e = 2).
double LayerActivationBytes(const MemoryInput& in);
// All blocks, under the checkpointing asked for. Tensor parallelism with sequence parallelism divides it (Korthikanti
// et al., section 4.2); a pipeline holds as many micro batches as it has stages (Narayanan et al., 2021, section 2.2).
double ActivationBytes(const MemoryInput& in);
// q s b V / chunks. Where the head's gradients are made in forward, 3 e s b h + e V h more, and from the second chunk
// on 4 V h for their fp32 sum. In a pipeline, what the last stage needs beyond the micro batches that the first one
// holds.
double LogitBytes(const MemoryInput& in);

// Unsharded weights beyond WeightBytes: FSDP e P_r + u e P_b; parameters in host memory e P_r + 2 e P_b, where P_b
// counts adapters and QLoRA's matrices have NF4's bytes; QLoRA one matrix in BF16 while it is used.
double GatheredBytes(const MemoryInput& in);
// Gradients on their way through a reduction or to host memory: 2 rho P_b + rho P_r; with replicas of shards (HSDP)
// 2 rho P_b / N more, which travel between the replicas.
double ReduceBytes(const MemoryInput& in);
// What the backward pass needs beyond the forward peak: max(0, A_1 + 2 e P_b + e P_r - activations - logits) at its
// end; where the head's gradients are made in forward also (w f + 2 h) e s b - logits at its beginning, with w = 3 for
// SwiGLU, 2 when it is recomputed, 1 for GELU, and under full checkpointing A_1 - f e s b more.
double BackwardExtraBytes(const MemoryInput& in);
double BufferBytes(const MemoryInput& in);  // gathered + reduce + backward extra

// Peak of the allocated bytes (what an allocator calls "max allocated"), fragmentation and driver excluded: the larger
// of the end of forward and the end of backward.
double AllocatedPeakBytes(const MemoryInput& in);

}  // namespace trainyard::sizing
