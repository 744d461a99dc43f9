// State of the engine, shared by engine.cpp, update.cpp and state.cpp only. Thread-safety: as Engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/dist/mesh.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/gradient_sums.h"
#include "trainer/engine/offload_store.h"
#include "trainer/engine/reduce.h"
#include "trainer/engine/unit.h"

namespace trainyard::engine {

// Of a tensor of the owned rows those that this rank saves; undefined stays so.
at::Tensor Saved(const Layout& layout, const Parameter& p, const at::Tensor& owned);
// The same of a tensor of the optimizer.
at::Tensor SavedState(const Layout& layout, const Parameter& p, size_t state);
RowRange SavedStateRows(const Layout& layout, const Parameter& p, const StatePlace& place);

struct Engine::Impl {
  Impl(device::Device& device, dist::Mesh& mesh, std::vector<UnitSpec> specs, EngineOptions opts);

  void Enter(int unit);  // a unit's forward begins
  void EndPass();        // the forward order becomes the recorded one
  // One owner copies from host memory in the order of computing: ahead of its time a unit would only take memory.
  bool Prefetches() const { return options.prefetch && layout.owners > 1; }
  void PreBackward(size_t use, int unit);  // the backward of a recorded use begins
  void UnitDone(int unit);                 // all gradients of the unit that will come are here
  // Calls fn for one unit after another while its masters and optimizer state are in memory.
  void Visit(Access access, const std::function<void(int unit)>& fn);
  // Updates the unit's parameters with sums over the owners. Collective among them.
  void UpdateWithSums(int unit, double lr, double grad_scale, int64_t step);
  std::vector<ShardView> ShardsOf(int unit) const;
  double ExactNorm();  // L2 norm over all ranks; collective
  // The gradient of the rows that this rank saves; undefined for a frozen parameter.
  at::Tensor SavedGradient(int unit, int index) const;

  const EngineOptions options;
  MemoryReport memory;
  std::unique_ptr<dist::Mesh> own_mesh;  // where none was given
  const Layout layout;
  Units units;
  const std::unique_ptr<OffloadStore> store;  // with NVMe offload
  std::optional<GradientSums> exact;
  const std::unique_ptr<Reducer> reducer;
  std::function<void(int)> before_update;
  bool settled = true;  // with exact sums: the gradients of this step are there

  std::vector<int> forward;   // units entered in this pass
  std::vector<int> recorded;  // the same of the pass before
  bool matches = true;        // this pass has followed the recorded one so far
  int open_units = 0;         // entered and not left
  std::vector<int> uses;      // units left with a graph: backward takes them from the end
  int recomputing = 0;        // stretches that run again right now, one inside another
  int passed = -1;            // the unit whose backward began last in such a stretch
  int left = -1;              // the same outside of one
};

}  // namespace trainyard::engine
