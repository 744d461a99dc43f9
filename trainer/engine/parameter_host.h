// What a model sees of whoever holds its parameters: the sharded engine in training, plain tensors in tests and
// benchmarks. The model brackets each use of a unit: PreForward(u), read Param(u, i), y = PostForward(u, y).
// Thread-safety: one rank's thread at a time.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::engine {

class ParameterHost {
 public:
  virtual ~ParameterHost() = default;
  // Full tensor of parameter `index` of unit `unit` in the compute type, a leaf that requires grad unless it is frozen;
  // of one in NF4 its packed rows. Valid between PreForward and PostForward of the unit; autograd may keep it for the
  // backward pass.
  virtual const at::Tensor& Param(int unit, int index) const = 0;
  virtual void PreForward(int unit) = 0;
  // `y` is the output of the unit that the rest of the model depends on; the returned tensor takes its place.
  virtual at::Tensor PostForward(int unit, at::Tensor y) = 0;
  // Between these two a stretch that ran without a graph runs again in backward, and its own backward follows. Uses in
  // it are no new pass through the model. They nest.
  virtual void BeginRecompute() = 0;
  virtual void EndRecompute() = 0;
};

}  // namespace trainyard::engine
