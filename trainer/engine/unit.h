// One unit's weights on one rank: the full tensors, the rows that this rank owns, and the way between the two. The
// parameters of a unit are gathered by one collective through a buffer [owners, n]: segment o holds the rows of owner o
// of every parameter, one after another, each padded to the rows per owner: trained parameters first, frozen ones last,
// so that buffers of gradients are a prefix. Where full tensors stay (stages 1 and 2) frozen ones are not gathered
// again: each rank makes or loads them once. Parameters in NF4 are bytes: they have segments and a gather of their own.
// Thread-safety: the rank's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include "trainer/dist/comm.h"
#include "trainer/engine/layout.h"
#include "trainer/engine/param_spec.h"

namespace trainyard::engine {

// Where a tensor of the optimizer is.
struct StatePlace {
  optim::State state;  // its shape is that of the whole
  int64_t offset = 0;  // of what this rank has of it in its section, in bytes
  int64_t row_bytes = 0;
};

struct Parameter {
  ParamSpec spec;
  int64_t rows_per_owner = 0;
  int64_t offset = 0;                                  // of its rows in a segment, in elements (NF4: in bytes)
  RowRange own;                                        // rows that this rank owns and updates
  at::Tensor weights;                                  // own rows that full tensors are made from
  at::Tensor full;                                     // leaf in the compute type
  bool gathered = false;                               // stage 3: there is something in it
  at::Tensor master;                                   // own rows, master type (frozen: compute type); `weights`, or
                                                       // in the offload file and undefined while no window has them
  std::vector<StatePlace> places;                      // of the optimizer's tensors
  std::vector<at::Tensor> state;                       // those, in their order, of own rows or whole; with an offload
                                                       // file empty while no window has them
  std::shared_ptr<torch::autograd::Node> accumulator;  // autograd keeps only a weak pointer, and hooks live in it
};

class Unit {
 public:
  Unit(const Layout& layout, UnitSpec spec);
  // Initial weights of the rows that this rank owns. Masters that are in a file must be bound.
  // `frozen`: of the parameters that are not trained too.
  void Initialise(uint64_t seed, bool frozen);

  const UnitSpec& spec() const { return spec_; }
  std::vector<Parameter>& params() { return params_; }
  const std::vector<Parameter>& params() const { return params_; }
  // Elements per owner of the trained parameters, padding included: of gradients and optimizer state.
  int64_t trained() const { return trained_; }
  int trained_count() const { return trained_count_; }
  bool has_frozen() const { return segment_ > trained_ || packed_ > 0; }

  // Starts to gather unless that has been done; then WaitUnshard makes the full tensors usable.
  void UnshardAsync();
  void WaitUnshard();
  // Frees the full tensors where the stage does so.
  void Reshard();
  // The same for one parameter whose gradient is complete: backward reads it no more. The rest stays; another use
  // gathers the whole unit again.
  void Release(int index);
  // The owned rows of trained parameters have changed: the next use gathers again.
  void Invalidate();
  // Those of frozen ones too.
  void InvalidateAll();
  bool full() const { return state_ == State::kFull; }

  // Bytes of the sections of optimizer state: the first tensor of every trained parameter is in the first one, and so
  // on.
  const std::vector<int64_t>& state_sections() const { return state_sections_; }

  // What the offload file has of trained parameters is in `parts`, in bytes: masters, where it has them, and the
  // sections of state; or not any more.
  void Bind(const std::vector<at::Tensor>& parts);
  void Unbind();
  // Makes the own rows' weights from masters that are in a file.
  void TakeMasters();

  // The rows of owner `o` of parameter `p` in a buffer of segments, of all parameters or of the trained ones.
  at::Tensor Piece(const at::Tensor& segments, const Parameter& p, int o) const;
  // The rows of owner `o` of a full tensor of parameter `p`.
  static at::Tensor Rows(const at::Tensor& full, const RowRange& rows) { return full.narrow(0, rows.lo, rows.size()); }
  RowRange OwnedBy(const Parameter& p, int o) const { return ShardRows(p.spec.rows(), o, layout_.owners); }

 private:
  enum class State { kSharded, kGathering, kFull };
  struct Gather {
    at::Tensor in, out;
    int64_t bytes = 0;  // of both, but for what is there anyway
    dist::WorkPtr work;
  };
  void PlaceSegments();
  void AllocateFlat();
  void PlaceStates();
  void AllocateStates();
  void Allocate(Parameter& p);
  at::Tensor StateIn(const at::Tensor& section, const Parameter& p, const StatePlace& place) const;
  void Initialise(const Parameter& p, uint64_t seed) const;
  void InitialiseNf4(const ParamSpec& spec, uint64_t seed, const RowRange& rows, const at::Tensor& target) const;
  bool FullOfFlat() const { return layout_.aliased && layout_.owners == 1; }
  bool RowsOfFull(const Parameter& p) const;
  at::ScalarType FlatType() const;
  bool Together() const;
  const at::Tensor& FlatOf(const Parameter& p) const;
  at::Tensor OwnRows(const at::Tensor& flat, int64_t offset, const Parameter& p) const;
  at::Tensor NewZeros(bool host, at::IntArrayRef shape, at::ScalarType type, int64_t MemoryReport::* term) const;
  at::Tensor PackMaster(int64_t count);
  at::Tensor PackNf4();
  void Start(Gather& gather, at::Tensor in, const std::string& label);
  void Clear(Gather& gather);
  bool IsFlat(const at::Tensor& t) const { return t.is_same(flat_) || t.is_same(packed_flat_); }
  void CopyOut();
  void Refill();
  void Free(const at::Tensor& full) const;
  void FreeGathered(Parameter& p);

  const Layout& layout_;
  const UnitSpec spec_;
  std::vector<Parameter> params_;
  int64_t trained_ = 0, segment_ = 0;  // elements per owner: of trained parameters, of all but those in NF4
  int64_t packed_ = 0;                 // bytes per owner of those in NF4
  int trained_count_ = 0;
  std::vector<int64_t> state_sections_;
  int64_t full_bytes_ = 0;
  State state_ = State::kSharded;
  bool released_ = false;      // full but for some parameters
  bool frozen_stale_ = false;  // full tensors of frozen parameters stay and are to be gathered once
  // Own rows, where they are not rows of the full tensors; see Together.
  at::Tensor flat_, frozen_flat_, packed_flat_;
  Gather gather_, nf4_gather_;
  std::string gather_label_;
};

}  // namespace trainyard::engine
