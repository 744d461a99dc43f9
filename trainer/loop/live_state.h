// The tensors of this rank that a checkpoint has, under their names there and where they live: those that are trained.
// Frozen ones are the base of an adapter; they stay as the files of model.pretrained have them, and are read from
// there. Thread-safety: functions of the rank's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/checkpoint/format.h"
#include "trainer/engine/engine.h"

namespace trainyard::loop {

// One tensor of this rank's state: a box of it, without data, and where it lives.
struct LiveTensor {
  checkpoint::TensorSlice slice;
  at::Tensor live;  // on the device, or in host memory where the engine keeps it there; undefined: on disk
  int64_t bytes = 0;
  int unit = 0;               // of the engine; see Engine::BeforeUpdate
  int index = 0, tensor = 0;  // for Engine::CopyShard
};
// This rank's boxes of what is trained of the model (fp32 master weights) and of the optimizer, without those that have
// no rows.
struct LiveState {
  std::vector<LiveTensor> model, optim;
  // Frozen parameters in NF4, which no checkpoint has: boxes of numbers in F32, as they are read, and the packed rows.
  std::vector<LiveTensor> nf4;
};
LiveState LiveStateOf(engine::Engine& engine);

// What is read into an engine.
enum class Part {
  kTrained,         // weights and the optimizer's state: what a checkpoint has
  kTrainedWeights,  // the weights of these alone
  kFrozen,          // the base
};

// Calls `read` with slices of the state that point to host memory to be read into, and stores what was read: all of
// them at once, or, where the engine has state on disk, unit by unit. Parameters in NF4 are read as numbers, some rows
// of one at a time (at most 32 MiB, or one row), and quantised. Returns the first error of `read`, or kInvalidArgument
// where a number to be quantised is not finite. Engine::OnLoaded comes after it.
Status ReadInto(engine::Engine& engine, Part part,
                const std::function<Status(const std::vector<checkpoint::TensorSlice>& slices)>& read);

}  // namespace trainyard::loop
