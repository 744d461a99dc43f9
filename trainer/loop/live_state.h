// The tensors of this rank that a checkpoint has, under their names there and where they live. Thread-safety: a
// function of the rank's thread.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "trainer/checkpoint/format.h"
#include "trainer/engine/engine.h"

namespace trainyard::loop {

// One tensor of this rank's state: a box of it, without data, and where it lives.
struct LiveTensor {
  checkpoint::TensorSlice slice;
  at::Tensor live;  // on the device, or in host memory where the engine keeps it there
  int unit = 0;     // of the engine; see Engine::BeforeUpdate
};
// This rank's boxes of the model (fp32 master weights) and of the optimizer, without those that have no rows.
struct LiveState {
  std::vector<LiveTensor> model, optim;
};
LiveState LiveStateOf(engine::Engine& engine);

}  // namespace trainyard::loop
