// The tensors of a model as far as bytes depend on them: how many rows and columns, how often, which of them are
// trained, and how many numbers of them one GPU holds. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

struct TensorSums {
  struct Tensor {
    int64_t rows = 0;
    int64_t row_size = 1;
    int64_t copies = 1;  // in the whole model
    bool in_block = false;
    bool matrix = false;
    bool heavier_end = false;  // outside the blocks, on the larger of the first and the last pipeline stage
  };
  std::vector<Tensor> base;      // of the model
  std::vector<Tensor> adapters;  // two matrices for every one that is adapted; empty without adapters
  double parameters = 0;         // counted, all of `base`
  double block = 0;              // P_b, one block
  double matrices = 0;           // of P_b, in matrices, and the bytes of these in NF4
  double packed_matrices = 0;
  double root = 0;             // P_r, outside the blocks
  double larger_end = 0;       // of P_r, on the larger of the first and the last pipeline stage
  double trained = 0;          // of `base`, or of `adapters` where there are some
  double trained_block = 0;    // numbers of one block that get a gradient
  double trained_root = 0;     // and outside the blocks
  double adapter_outputs = 0;  // numbers that the adapters of one block make between their two matrices, per token
  double largest_matrix = 0;   // of a block

  const std::vector<Tensor>& Trained() const { return adapters.empty() ? base : adapters; }
};
// A target that no matrix has adds nothing (Check reports it).
TensorSums SumTensors(const ModelShape& shape, const Adapter& adapter);

// Errors: kInvalidArgument for a target that is no matrix of the blocks; it says which there are.
Status CheckTargets(const ModelShape& shape, const std::vector<std::string>& targets);

// `in.sums`, or made anew.
std::shared_ptr<const TensorSums> SumsOf(const MemoryInput& in);

// Layers of the fullest pipeline stage.
int64_t LayersHere(const MemoryInput& in);

// The number of parameters as stated over the one that the shape counts: 1 but for bare numbers such as 7B.
double StatedOverCounted(const MemoryInput& in, const TensorSums& sums);

// Calls visit(rows, row_size, copies, tensor) for every tensor of `tensors` of which the fullest GPU holds rows: cut by
// tensor parallelism and then over `shards` ranks, by rows, ceil(R / N) each (FSDP2 and our trainer).
template <typename Visit>
void VisitHeld(const MemoryInput& in, const std::vector<TensorSums::Tensor>& tensors, int64_t shards, Visit visit) {
  const double layer_share = in.shape.layers > 0 && in.pipeline_parallel > 1
                                 ? static_cast<double>(LayersHere(in)) / static_cast<double>(in.shape.layers)
                                 : 1;
  for (const TensorSums::Tensor& t : tensors) {
    if (!t.in_block && in.pipeline_parallel > 1 && !t.heavier_end) continue;
    int64_t rows = t.rows;
    if (t.matrix && in.tensor_parallel > 1) rows = (rows + in.tensor_parallel - 1) / in.tensor_parallel;
    if (shards > 1) rows = (rows + shards - 1) / shards;
    visit(rows, t.row_size, static_cast<double>(t.copies) * (t.in_block ? layer_share : 1), t);
  }
}

}  // namespace trainyard::sizing
