// Full activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", 2016): a stretch of a
// model of which only the input is kept. Backward runs it a second time, now with a graph, and goes through that graph
// at once. The stretch must be a function of its input and of the listed parameters: what it draws at random must not
// depend on how often it runs. The value of the second run is not used, so what only leads to it may be left out.
//
// Parameters are inputs of the function: their gradients come once, to whoever accumulates them, however often and
// wherever else they are used; and the output has a graph also where the input needs none. A stretch may lie between
// PreForward and PostForward of its unit, which is then gathered again before the second run like any other use, or
// hold those calls of several units, or other stretches. Thread-safety: one rank's thread at a time.
#pragma once

#include <functional>

#include <ATen/ATen.h>

#include "trainer/engine/parameter_host.h"

namespace trainyard::model {

enum class Run { kFirst, kAgain };
// kFirst: the value, no graph. kAgain: a graph, and a tensor of the value's shape and type.
using Stretch = std::function<at::Tensor(const at::Tensor&, Run)>;

// stretch(x, kFirst). `parameters`: every leaf that the stretch reads from `host`. Both must outlive the backward pass.
// Without gradients the stretch just runs. Gradients have the same bits as those of the plain stretch.
at::Tensor Recomputed(engine::ParameterHost& host, Stretch stretch, const at::Tensor& x, at::TensorList parameters);

}  // namespace trainyard::model
