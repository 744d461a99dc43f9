// All parameters of a model in memory, to be read only: what a model needs that makes text. Thread-safety: Load on one
// thread; afterwards as ParameterHost.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/checkpoint/format.h"
#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"

namespace trainyard::generate {

// Where weights come from. `dtype`: in which float format of safetensors a tensor can be read, given the one that is
// wanted; the result is that one, or the one it is stored in. `read` fills boxes in such a format.
struct WeightReader {
  std::function<Result<std::string>(const std::string& name, const std::string& wanted)> dtype;
  std::function<Status(const std::vector<checkpoint::TensorSlice>& slices)> read;
  // What is added to a parameter, in fp32 and of its shape, before it is rounded to the type; undefined: nothing. Null:
  // to none.
  std::function<Result<at::Tensor>(const engine::ParamSpec& spec)> addition;
};

class Weights final : public engine::ParameterHost {
 public:
  // Reads the parameters of `units` into `type`, kFloat or kBFloat16, on the CPU. Memory besides them: a piece of 64
  // MiB, or two of a parameter in fp32 where something is added to it. Errors: of the reader.
  static Result<std::unique_ptr<Weights>> Load(const std::vector<engine::UnitSpec>& units, at::ScalarType type,
                                               const WeightReader& reader);

  const at::Tensor& Param(int unit, int index) const override { return params_[unit][index]; }
  void PreForward(int /*unit*/) override {}
  at::Tensor PostForward(int /*unit*/, at::Tensor y) override { return y; }
  void BeginRecompute() override {}
  void EndRecompute() override {}

  int64_t count() const;  // of numbers

 private:
  std::vector<std::vector<at::Tensor>> params_;
};

}  // namespace trainyard::generate
