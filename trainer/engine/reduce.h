// Gradients of one rank: taken from autograd parameter by parameter, added up in the master type, and reduced to the
// rows of their owners. When and into what depends on the stage:
//   one rank        kept as they are
//   stage 0         added up in a flat buffer per unit, all-reduced in place after the last micro-batch
//   stage 1         added up in [owners, n], reduce-scattered after the last micro-batch into rows that come only then
//   stage 2, 3      packed into [owners, n] for each micro-batch, reduce-scattered, added to the own rows in that order
// Sums over ranks are in rank order. At most `max_inflight` reductions are under way; the next one waits for the
// oldest. Thread-safety: the rank's thread (autograd calls hooks on the thread that called backward).
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "trainer/engine/unit.h"

namespace trainyard::engine {

class Reducer {
 public:
  Reducer(const Layout& layout, std::vector<std::unique_ptr<Unit>>& units, int max_inflight);

  // Forgets all gradients.
  void BeginStep();
  // Before the backward pass of a micro-batch.
  void BeginMicroBatch(bool last);
  // Takes the gradient that autograd has just left in the parameter. True when it was the unit's last one.
  bool Take(int unit, int index);
  // True when the unit's gradients of this micro-batch have not been completed yet.
  bool Pending(int unit) const { return states_[unit].pending > 0; }
  // All gradients of the unit that will come in this micro-batch are here; missing ones count as zeros.
  void Complete(int unit);
  // Waits for what is under way and fills in zeros for what never came.
  void Finish();

  // After Finish: gradient of the rows that this rank owns, master type, contiguous.
  at::Tensor Owned(int unit, int index) const;

 private:
  struct UnitState {
    at::Tensor local;              // [owners * n]: sums or packed gradients of this rank, more than one rank only
    at::Tensor shard;              // [n]: reduced sum of the own rows, more than one owner only
    bool reduced = false;          // `shard` holds something of this step
    int pending = 0;               // gradients still to come in this micro-batch
    std::vector<bool> filled;      // parameters that `local` has something of
    std::vector<at::Tensor> kept;  // one rank: the gradients themselves
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
  void FinishOldest();

  const Layout& layout_;
  std::vector<std::unique_ptr<Unit>>& units_;
  const size_t max_inflight_;
  std::vector<UnitState> states_;
  std::deque<InFlight> inflight_;
  bool last_ = true;
};

}  // namespace trainyard::engine
