// Where an engine with exact sums turns gradients into fixed point (fixed_point.h) and back: the shift of each
// parameter, what its gradients were like in this step, and the agreement of all ranks on it.
// Thread-safety: the rank's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/dist/comm.h"
#include "trainer/engine/fixed_point.h"

namespace trainyard::engine {

// sums = (or, with `add`, +=) fixed point of `x`; returns the largest |x|, NaN when one is not finite. `sums` is
// contiguous int64, `x` float or bfloat16 of as many elements, both in the same memory. The second form works on any
// device and gives the same integers.
uint32_t QuantiseOnCpu(const at::Tensor& x, int shift, bool add, const at::Tensor& sums);
at::Tensor QuantiseByOperations(const at::Tensor& x, int shift, bool add, const at::Tensor& sums);

class GradientSums {
 public:
  // `names` of all parameters; `addends`: micro-batches of a step, of all ranks together. Throws
  // std::invalid_argument (AddendBits).
  GradientSums(std::vector<std::string> names, int64_t addends);

  void BeginStep();
  // Parameter `p`: sums = (or, with `add`, +=) these gradients of one micro-batch.
  void Add(int p, const at::Tensor& gradient, bool add, const at::Tensor& sums);
  // Collective over all ranks of the job, after the last Add of a step. True: the sums are right, and the shifts are
  // those of the next step, so the sums of this one have to be read with shifts of before: see Read. False: the step
  // has to be run again with the shifts that are set now; a second time in a row cannot come from the gradients and
  // throws std::logic_error.
  bool Settle(dist::Comm& comm, const at::Device& device);
  // Gradients from sums of the step that was settled last; float, a new tensor. NaN where a gradient was not finite.
  at::Tensor Read(int p, const at::Tensor& sums) const;

  // Parameters whose gradients made Settle say no, or were not finite; for people.
  const std::string& reason() const { return reason_; }

  // The shifts that the next step starts with, by name: state of the training. Names that are missing start afresh,
  // others are passed over.
  std::map<std::string, int> shifts() const;
  void set_shifts(const std::map<std::string, int>& shifts);

 private:
  std::vector<int> Magnitudes(dist::Comm& comm, const at::Device& device) const;

  const std::vector<std::string> names_;
  const int addend_bits_;
  std::vector<int> shifts_;         // of the step under way, then of the next
  std::vector<int> settled_;        // of the step that was settled
  std::vector<bool> not_finite_;    // in that step
  std::vector<uint32_t> largest_;   // bits of the largest value that this rank saw in this step
  std::vector<at::Tensor> remote_;  // the same where gradients are not in host memory
  bool redoing_ = false;
  std::string reason_;
};

}  // namespace trainyard::engine
