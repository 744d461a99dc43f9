// A linear layer of a block: its matrix, which may be frozen and packed in NF4, its bias, and a low-rank adapter beside
// them (adapter.h). y = x W^T + b + scale * Drop(x) A^T B^T. Only what is trained gets a gradient or costs one; a
// packed matrix is unpacked for a product and again for its gradient, one at a time, and never kept. Thread-safety:
// plain values; functions of their arguments.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "trainer/model/dropout.h"

namespace trainyard::model {

// Of a linear layer what is no tensor.
struct LinearForm {
  bool input_first = false;  // the matrix is [in, out] (Conv1D of GPT-2), not [out, in]
  int64_t packed_row = 0;    // numbers of a row of the matrix, which is in NF4 (quant/nf4_tensor.h); 0: it is not
  double scale = 0;          // of what the adapter gives
  Dropout dropout;           // of what goes into it

  bool biased = false, adapted = false;
};

struct Linear {
  at::Tensor weight;    // [out, in] or [in, out]; packed: its rows
  at::Tensor bias;      // [out]; undefined: none
  at::Tensor down, up;  // A, [r, in], and B, [out, r]; undefined: no adapter
  LinearForm form;

  bool packed() const { return form.packed_row > 0; }
  bool adapted() const { return down.defined(); }
  // Nothing but a product, which plain autograd does as well.
  bool plain() const { return !packed() && !adapted(); }
  int64_t outputs() const;
};

// What of a linear layer wants a gradient.
struct LinearWants {
  bool x = false, weight = false, bias = false, down = false, up = false;
  bool input() const { return weight || down || up; }  // these are made with x
};
// Each undefined where it is not wanted.
struct LinearGradients {
  at::Tensor x, weight, bias, down, up;
};

// Values as plain arithmetic, without autograd: forward and the formulas of backward. x: [n, in], g: [n, out].
at::Tensor Product(const Linear& linear, const at::Tensor& x);
// x may be undefined where wants.input() is false.
LinearGradients GradientsOf(const Linear& linear, const at::Tensor& x, const at::Tensor& g, const LinearWants& wants);

// The products of one input, with autograd. Gradients of x are added up from the last to the first, as plain autograd
// adds those of separate products.
std::vector<at::Tensor> Products(const at::Tensor& x, const std::vector<Linear>& linears);
at::Tensor Apply(const Linear& linear, const at::Tensor& x);

}  // namespace trainyard::model
