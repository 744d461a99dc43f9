// State of the engine, shared by engine.cpp and state.cpp only. Thread-safety: as Engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/engine/engine.h"
#include "trainer/engine/gradient_sums.h"
#include "trainer/engine/reduce.h"
#include "trainer/engine/unit.h"

namespace trainyard::engine {

struct Engine::Impl {
  Impl(device::Device& device, dist::Comm& comm, std::vector<UnitSpec> specs, EngineOptions opts);

  void Enter(int unit);          // a unit's forward begins
  void EndPass();                // the forward order becomes the recorded one
  void PreBackward(size_t use);  // the backward of a recorded use begins
  void UnitDone(int unit);       // all gradients of the unit that will come are here
  double ExactNorm();            // L2 norm over all ranks; collective
  // This rank's rows, by the shard rule at every stage, of a gradient.
  at::Tensor RankGradient(int unit, int index) const;

  const EngineOptions options;
  MemoryReport memory;
  const Layout layout;
  std::vector<std::unique_ptr<Unit>> units;
  std::optional<GradientSums> exact;
  Reducer reducer;
  bool settled = true;  // with exact sums: the gradients of this step are there

  std::vector<int> forward;   // units entered in this pass
  std::vector<int> recorded;  // the same of the pass before
  bool matches = true;        // this pass has followed the recorded one so far
  int open_units = 0;         // entered and not left
  std::vector<int> uses;      // units left with a graph, in order: backward goes through them from the end
};

}  // namespace trainyard::engine
