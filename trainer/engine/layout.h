// What all units of an engine share: who owns which rows, in which types, and what a stage keeps. Ranks form a grid of
// `replicas` x `owners` (dist::Mesh): owners divide the rows among them, replicas hold the same rows.
// Thread-safety: plain values.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "trainer/engine/memory.h"
#include "trainer/engine/offload.h"
#include "trainer/engine/param_spec.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::device {
class Device;
}
namespace trainyard::dist {
class Comm;
}

namespace trainyard::engine {

struct Layout {
  device::Device* device = nullptr;
  dist::Comm* world = nullptr;
  dist::Comm* shard = nullptr;      // the owners: ranks that hold all rows together
  dist::Comm* replicate = nullptr;  // the replicas: ranks that hold the same rows
  MemoryReport* memory = nullptr;
  int stage = 0;
  int owners = 1;  // 1 where every rank owns all rows (stage 0, or one rank)
  int owner = 0;   // this rank's place among the owners
  int replicas = 1;
  int replica = 0;
  at::ScalarType compute = at::kFloat;
  at::ScalarType master = at::kFloat;
  Offload offload = Offload::kNone;
  bool frees = false;          // full tensors are freed after use
  bool aliased = false;        // master weights are rows of the full tensors
  bool stored_master = false;  // master weights are in the offload file, the weights made from them are in memory
  bool poison = false;         // what is freed is made NaN first, and full tensors then stay, so that a late read shows
  optim::Options optimizer;    // what it keeps of each trained parameter

  bool offloads() const { return offload != Offload::kNone; }
  // Full tensors follow an update without being made again.
  bool current() const { return aliased || (!frees && offload == Offload::kNvme); }
  int ranks() const { return owners * replicas; }
  RowRange OwnRows(int64_t rows) const { return ShardRows(rows, owner, owners); }
  // Of the owned rows those that this rank writes and counts: replicas divide them by the shard rule, so that over all
  // ranks each row comes once.
  RowRange SavedRows(int64_t rows) const {
    const RowRange own = OwnRows(rows), part = ShardRows(own.size(), replica, replicas);
    return {own.lo + part.lo, own.lo + part.hi};
  }
  // The same of what every rank has whole.
  RowRange SavedOfWhole(int64_t rows) const;
};

// Overwrites floating-point contents that nobody may read any more, where the layout asks for it.
void Poison(const Layout& layout, const at::Tensor& t);

}  // namespace trainyard::engine
