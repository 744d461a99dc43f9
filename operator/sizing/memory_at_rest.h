// Bytes that one GPU holds between two steps: weights, gradients, master copy, optimizer states. P trained parameters,
// N ranks that share a state. Thread-safety: pure functions.
#pragma once

#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

struct StateBytes {
  double weights = 0;
  double gradients = 0;
  double master = 0;
  double optimizer = 0;
  double Total() const { return weights + gradients + master + optimizer; }
};
// On the GPU: what is offloaded is not here. The rank with most rows is counted: every tensor is cut into ceil(R / N)
// rows per rank (FSDP2; ZeRO, section 5).
StateBytes StateOnGpu(const MemoryInput& in);
// In host memory or on disk, of one GPU: zero without offload.
StateBytes StateOffGpu(const MemoryInput& in);

// The terms one by one.
// Weights as the forward pass reads them: 2 P; with FSDP a shard of them only where no master copy holds it. Frozen
// weights under adapters: as many bytes as the base has, cut by FSDP too; matrices in NF4 row by row (packed.h of
// trainer/contract): 4.14 bits per weight in rows of 4,096.
double WeightBytes(const MemoryInput& in);
// Accumulated gradients: 4 P, cut from ZeRO-2 on.
double GradientBytes(const MemoryInput& in);
// What the reduce-scatter of our trainer adds to that at ZeRO-1, where full gradients lie in one buffer of ceil(R / N)
// rows for each rank: less than N rows of every tensor, and not in any total.
double GradientPaddingBytes(const MemoryInput& in);
// fp32 copy that the optimizer updates: 4 P, cut from ZeRO-1 on.
double MasterBytes(const MemoryInput& in);
// States of the optimizer, cut from ZeRO-1 on: AdamW 8 P; 8-bit AdamW 2 P and two fp32 scales per block of 256 of a
// row, vectors and matrices under 4,096 numbers in 32 bits (Dettmers et al., 2022; contract::MomentRowBytes); Adafactor
// 4 (rows + columns) per matrix and 4 per number of a vector, every rank with all columns (Shazeer and Stern, 2018);
// SGD 4 P with momentum.
double OptimizerBytes(const MemoryInput& in);

// Numbers that one GPU trains when they are cut over `shards` ranks; 1: all of them.
double TrainedElements(const MemoryInput& in, int64_t shards);

}  // namespace trainyard::sizing
