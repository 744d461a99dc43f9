// Gradients of one rank: taken from autograd parameter by parameter, added up in the master type, and reduced to the
// rows of their owners. When and into what depends on who owns rows:
// - one rank (reduce_local.cpp): kept as they are;
// - one owner (reduce_replicated.cpp): added up in one flat buffer that all replicas sum in place, in buckets, during
// the
//   last micro-batch;
// - several owners (reduce_sharded.cpp): put into [owners, n] per unit and reduce-scattered, after the last micro-batch
//   or after each and added to the own rows in that order; then summed over the replicas, if there are any, once a
//   step.
//
// With exact sums all of these, one rank included, are sums of 64-bit integers (gradient_sums.h) until the step is
// settled; then gradients are read from them. Other sums over ranks are in rank order. Thread-safety: the rank's thread
// (autograd calls hooks on the thread that called backward).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer/dist/comm.h"
#include "trainer/engine/gradient_sums.h"
#include "trainer/engine/unit.h"

namespace trainyard::engine {

using Units = std::vector<std::unique_ptr<Unit>>;

class Reducer {
 public:
  virtual ~Reducer() = default;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Forgets all gradients.
  void BeginStep();
  // Before the backward pass of a micro-batch. `padding`: what Take is given counts as nothing.
  void BeginMicroBatch(bool last, bool padding);
  // Takes the gradient that autograd has just left in the parameter. True when it was the unit's last one.
  bool Take(int unit, int index);
  // True when the unit's gradients of this micro-batch have not been completed yet.
  bool Pending(int unit) const { return pending_[unit] > 0; }
  // All gradients of the unit that will come in this micro-batch are here; missing ones count as zeros.
  void Complete(int unit);
  // Waits for what is under way and fills in zeros for what never came.
  virtual void Finish() = 0;
  // With exact sums, after Finish: collective, true when the gradients are there (GradientSums::Settle).
  bool Settle();

  // After Finish (and Settle): gradient of the rows that this rank owns of a trained parameter, master type,
  // contiguous.
  at::Tensor Owned(int unit, int index) const { return exact_ ? read_[unit][index] : Sum(unit, index); }

 protected:
  // `exact`: sums in fixed point; null: in the master type.
  Reducer(const Layout& layout, Units& units, GradientSums* exact);

  virtual void Clear() = 0;
  // One gradient of this micro-batch, in the compute type.
  virtual void Add(int unit, int index, at::Tensor grad) = 0;
  virtual void Completed(int unit) = 0;
  // Sum of the gradients of the rows that this rank owns.
  virtual at::Tensor Sum(int unit, int index) const = 0;
  // Calls read(unit, index) for every trained parameter and frees sums as soon as they have been read, so that not all
  // of them are there together with what is read.
  virtual void Drain(const std::function<void(int unit, int index)>& read) = 0;

  // to = (or, with `add`, +=) rows of the gradient of a parameter.
  void Put(int unit, int index, const at::Tensor& rows, bool add, at::Tensor to);
  dist::Reduce SumKind() const { return exact_ ? dist::Reduce::kInt64 : dist::Reduce::kOrderedSum; }
  at::ScalarType SumType() const { return exact_ ? at::kLong : layout_.master; }
  // Memory for sums of gradients, booked.
  at::Tensor NewSums(int64_t count, int64_t MemoryReport::* term = &MemoryReport::gradients);
  void Release(at::Tensor& t, int64_t MemoryReport::* term = &MemoryReport::gradients);

  const Layout& layout_;
  Units& units_;
  bool last_ = true;  // this is the last micro-batch of the step

 private:
  GradientSums* const exact_;
  bool padding_ = false;
  std::vector<int> pending_;                   // by unit: gradients still to come in this micro-batch
  std::vector<int> first_;                     // by unit: number of its first parameter, for `exact_`
  std::vector<std::vector<at::Tensor>> read_;  // gradients read from exact sums
};

struct ReduceOptions {
  int max_inflight = 2;          // several owners: reduce inputs that live for one reduction, alive at once
  bool each_micro_batch = true;  // several owners: reduce after each micro-batch and not only after the last
  int64_t bucket_bytes = 0;      // one owner: no reduction is larger
  GradientSums* exact = nullptr;
};
// What is given must outlive the reducer.
std::unique_ptr<Reducer> MakeReducer(const Layout& layout, Units& units, const ReduceOptions& options);

std::unique_ptr<Reducer> MakeLocalReducer(const Layout& layout, Units& units);
std::unique_ptr<Reducer> MakeReplicatedReducer(const Layout& layout, Units& units, const ReduceOptions& options);
std::unique_ptr<Reducer> MakeShardedReducer(const Layout& layout, Units& units, const ReduceOptions& options);

}  // namespace trainyard::engine
