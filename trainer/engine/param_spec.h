// What a model says of its parameters, and which rows of each a rank owns. Names and orientation are Hugging Face's; a
// tied weight is listed once. No LibTorch here, so that tools without it can reason about layouts.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/contract/packed.h"

namespace trainyard::engine {

enum class Init { kNormal, kUniform, kOnes, kZeros };

struct ParamSpec {
  std::string name;            // Hugging Face name, unique in the model
  std::vector<int64_t> shape;  // at least one dimension; dimension 0 is the one that is sharded
  Init init = Init::kNormal;
  double init_std = 0.02;        // of kNormal, mean 0; of kUniform the bound on both sides of 0
  bool decay = true;             // false: no weight decay (norms, biases)
  int tensor_parallel_dim = -1;  // dimension that tensor parallelism splits; -1: replicated
  bool frozen = false;           // never trained: no gradient, no optimizer state, no master beside the compute type
  bool nf4 = false;  // frozen, and kept in NF4 (trainer/quant/nf4.h): a uint8 tensor [rows, kept_row_size()]

  int64_t rows() const { return shape.at(0); }
  int64_t row_size() const {  // elements per row
    int64_t n = 1;
    for (size_t d = 1; d < shape.size(); ++d) n *= shape[d];
    return n;
  }
  int64_t numel() const { return rows() * row_size(); }
  // Of a row as it is kept: numbers of the compute type, bytes in NF4.
  int64_t kept_row_size() const { return nf4 ? contract::Nf4RowBytes(row_size()) : row_size(); }
  // Of so many rows as they are kept.
  std::vector<int64_t> KeptShape(int64_t count) const {
    if (nf4) return {count, kept_row_size()};
    std::vector<int64_t> kept = shape;
    kept[0] = count;
    return kept;
  }
};

// Parameters that are gathered, used and reduced together: a transformer block, or the root of the model.
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
  // False for a unit whose backward follows its forward at once or whose parameters are used at both ends (root with
  // tied embeddings): stage 3 then keeps it gathered between forward and backward.
  bool reshard_after_forward = true;
};

struct RowRange {
  int64_t lo = 0, hi = 0;
  int64_t size() const { return hi - lo; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The shard rule: rank r of W owns rows [r*c, min(R, (r+1)*c)) with c = ceil(R/W); ranks past the end own none.
inline RowRange ShardRows(int64_t rows, int rank, int world) {
  const int64_t per_rank = (rows + world - 1) / world;
  const int64_t lo = rank * per_rank < rows ? rank * per_rank : rows;
  const int64_t hi = lo + per_rank < rows ? lo + per_rank : rows;
  return {lo, hi};
}

}  // namespace trainyard::engine
