// Low-rank adapters (Hu et al., "LoRA: low-rank adaptation of large language models", 2021): beside a frozen matrix W a
// pair of small ones is trained, y = W x + alpha / r * B A dropout(x). With the frozen matrices in NF4 it is QLoRA
// (Dettmers et al., 2023). Names, shapes and initial values are those of the Python package PEFT: of the matrix
// NAME.weight they are NAME.lora_A.weight, [r, in], and NAME.lora_B.weight, [out, r], also where the matrix is
// [in, out]; A is uniform, B is zero. Thread-safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/engine/param_spec.h"

namespace trainyard::model {

struct Adapter {
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;                // share of what goes into an adapter
  std::vector<std::string> targets;  // last words of the names of the matrices that get one, such as q_proj; empty: all
                                     // matrices of the blocks
  bool nf4 = false;                  // the frozen matrices of the blocks are kept in 4 bits
  uint64_t seed = 0;                 // of dropout
};

// Freezes every parameter of `units`, of which the first is the root and each other one a block, and adds the adapters'
// after those of their block, in the order of the matrices. Throws std::invalid_argument for a rank, an alpha or a
// dropout that cannot be, and for a target that is no matrix of the blocks: then it says which there are.
void AddAdapters(const Adapter& adapter, bool input_first, std::vector<engine::UnitSpec>& units);

// For each parameter of a block the index of its adapter's A, which is followed by its B; -1: it has none.
std::vector<int> AdapterPlaces(const engine::UnitSpec& block);

}  // namespace trainyard::model
