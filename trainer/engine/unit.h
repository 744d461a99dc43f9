// One unit's weights on one rank: the full tensors, the rows that this rank owns, and the way between the two. The
// parameters of a unit are gathered by one collective through a buffer [owners, n]: segment o holds the rows of owner o
// of every parameter, one after another, each padded to the rows per owner.
// Thread-safety: the rank's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include "trainer/dist/comm.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/param_spec.h"

namespace trainyard::device {
class Device;
}

namespace trainyard::engine {

// What all units of an engine share.
struct Layout {
  device::Device* device = nullptr;
  dist::Comm* comm = nullptr;
  MemoryReport* memory = nullptr;
  int stage = 0;
  int world = 1;
  int rank = 0;
  int owners = 1;  // 1 when every rank owns all rows (stage 0, or one rank), else world
  int owner = 0;   // this rank's place among the owners
  at::ScalarType compute = at::kFloat;
  at::ScalarType master = at::kFloat;
  bool frees = false;    // full tensors are freed after use
  bool aliased = false;  // master weights are rows of the full tensors
  int64_t states = 0;    // tensors that the optimizer keeps of each parameter
};

struct Parameter {
  ParamSpec spec;
  int64_t rows_per_owner = 0;
  int64_t offset = 0;                                  // of its rows in a segment, in elements
  RowRange own;                                        // rows that this rank owns and updates
  at::Tensor full;                                     // leaf in the compute type
  at::Tensor master;                                   // own rows, master type
  std::vector<at::Tensor> state;                       // of the optimizer, as `master`; in the order of its names
  std::shared_ptr<torch::autograd::Node> accumulator;  // autograd keeps only a weak pointer, and hooks live in it
};

class Unit {
 public:
  Unit(const Layout& layout, UnitSpec spec, uint64_t seed);

  const UnitSpec& spec() const { return spec_; }
  std::vector<Parameter>& params() { return params_; }
  const std::vector<Parameter>& params() const { return params_; }
  int64_t segment() const { return segment_; }  // n: elements per owner, padding included

  // Starts to gather unless that has been done; then WaitUnshard makes the full tensors usable.
  void UnshardAsync();
  void WaitUnshard();
  // Frees the full tensors where the stage does so.
  void Reshard();
  // The owned rows have changed: the next use gathers again.
  void Invalidate();
  bool full() const { return state_ == State::kFull; }

  // The rows of owner `o` of parameter `p` in a buffer [owners * n] of segments.
  at::Tensor Piece(const at::Tensor& segments, const Parameter& p, int o) const;
  // The rows of owner `o` of a full tensor of parameter `p`.
  static at::Tensor Rows(const at::Tensor& full, const RowRange& rows) { return full.narrow(0, rows.lo, rows.size()); }
  RowRange OwnedBy(const Parameter& p, int o) const { return ShardRows(p.spec.rows(), o, layout_.owners); }

 private:
  enum class State { kSharded, kGathering, kFull };
  void Allocate(uint64_t seed);
  at::Tensor PackMaster();
  void CopyOut();

  const Layout& layout_;
  const UnitSpec spec_;
  std::vector<Parameter> params_;
  int64_t segment_ = 0;
  int64_t full_bytes_ = 0;
  State state_ = State::kSharded;
  at::Tensor master_flat_;  // [n]; undefined where master weights are rows of the full tensors
  at::Tensor gather_in_, gather_out_;
  int64_t gather_bytes_ = 0;
  dist::WorkPtr gather_;
  std::string gather_label_;
};

}  // namespace trainyard::engine
