// Gradients of one rank: taken from autograd parameter by parameter, added up in the master type, and reduced to the
// rows of their owners. When and into what depends on the stage:
//   one rank        kept as they are
//   stage 0         added up in a flat buffer per unit, all-reduced in place after the last micro-batch
//   stage 1         added up in [owners, n], reduce-scattered after the last micro-batch into rows that come only then
//   stage 2, 3      packed into [owners, n] for each micro-batch, reduce-scattered, added to the own rows in that order
// With exact sums all of these, one rank included, are sums of 64-bit integers (gradient_sums.h) until the step is
// settled; then gradients are read from them.
// Sums over ranks are in rank order. At most `max_inflight` reductions are under way; the next one waits for the
// oldest. Thread-safety: the rank's thread (autograd calls hooks on the thread that called backward).
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "trainer/engine/gradient_sums.h"
#include "trainer/engine/unit.h"

namespace trainyard::engine {

class Reducer {
 public:
  // `exact`: sums in fixed point; null: in the master type. It must outlive the reducer.
  Reducer(const Layout& layout, std::vector<std::unique_ptr<Unit>>& units, int max_inflight, GradientSums* exact);

  // Forgets all gradients.
  void BeginStep();
  // Before the backward pass of a micro-batch. `padding`: what Take is given counts as nothing.
  void BeginMicroBatch(bool last, bool padding);
  // Takes the gradient that autograd has just left in the parameter. True when it was the unit's last one.
  bool Take(int unit, int index);
  // True when the unit's gradients of this micro-batch have not been completed yet.
  bool Pending(int unit) const { return states_[unit].pending > 0; }
  // All gradients of the unit that will come in this micro-batch are here; missing ones count as zeros.
  void Complete(int unit);
  // Waits for what is under way and fills in zeros for what never came.
  void Finish();
  // With exact sums, after Finish: collective, true when the gradients are there (GradientSums::Settle).
  bool Settle();

  // After Finish: gradient of the rows that this rank owns, master type, contiguous.
  at::Tensor Owned(int unit, int index) const;

 private:
  struct UnitState {
    at::Tensor local;              // [owners * n]: sums or packed gradients of this rank, more than one rank only
    at::Tensor shard;              // [n]: reduced sum of the own rows, more than one owner only
    bool reduced = false;          // `shard` holds something of this step
    int pending = 0;               // gradients still to come in this micro-batch
    std::vector<bool> filled;      // parameters that `local` has something of
    std::vector<at::Tensor> kept;  // the gradients themselves: of one rank, or read from exact sums
    int first = 0;                 // number of the unit's first parameter, for `exact_`
    std::string label;
  };
  struct InFlight {
    int unit;
    dist::WorkPtr work;
    at::Tensor in;   // freed when done
    at::Tensor out;  // to be added to the shard; undefined when it went there directly
  };

  void Keep(UnitState& state, int index, at::Tensor grad);
  void Pack(Unit& unit, UnitState& state, int index, const at::Tensor& grad);
  void AllocateLocal(Unit& unit, UnitState& state);
  void AllocateShard(Unit& unit, UnitState& state);
  void Launch(int unit);
  void ReadExact(int unit);
  at::ScalarType SumType() const { return exact_ ? at::kLong : layout_.master; }
  dist::Reduce SumKind() const { return exact_ ? dist::Reduce::kInt64 : dist::Reduce::kOrderedSum; }
  // One rank keeps its gradients as autograd leaves them.
  bool Keeps() const { return layout_.world == 1 && !exact_; }
  void FinishOldest();

  const Layout& layout_;
  std::vector<std::unique_ptr<Unit>>& units_;
  const size_t max_inflight_;
  GradientSums* const exact_;
  std::vector<UnitState> states_;
  std::deque<InFlight> inflight_;
  bool last_ = true;
  bool padding_ = false;
};

}  // namespace trainyard::engine
