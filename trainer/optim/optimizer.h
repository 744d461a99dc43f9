// The optimizers behind one face: what each keeps per parameter, and its update. Thread-safety: functions of their
// arguments.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/optim/adafactor.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw8bit.h"
#include "trainer/optim/sgd.h"

namespace trainyard::optim {

using Options = std::variant<AdamWOptions, SgdOptions, AdamW8bitOptions, AdafactorOptions>;

// A tensor that an optimizer keeps of a parameter, zero at first.
struct State {
  const char* name;  // that of PyTorch's optimizer; in 8 bits, which PyTorch does not have, with "_8bit" behind it
  at::ScalarType type;
  std::vector<int64_t> shape;  // for all rows of the parameter
  // Its rows are those of the parameter, and whoever owns these has them. Else every owner has all of it.
  bool by_rows = true;
};

// What is kept of a parameter of `shape` whose masters are of type `master`, in this order everywhere:
//   AdamW      exp_avg, exp_avg_sq, of its shape and the type of the masters
//   AdamW8bit  exp_avg_8bit, exp_avg_sq_8bit, uint8 [rows, MomentRowBytes(numbers of a row)]; of what is too small as
//              AdamW (contract::MomentsInEightBits)
//   Adafactor  row_var [rows] and col_var [numbers of a row], the latter with every owner; of a vector variance
//   SGD        momentum_buffer, with momentum
std::vector<State> States(const Options& options, at::IntArrayRef shape, at::ScalarType master);

// The same without weight decay: for norms and biases.
Options WithoutDecay(Options options);

// True when an update of some rows needs sums over all of them, so that Update has to be given all: Adafactor. An
// engine whose ranks own rows uses AdafactorUpdate.
bool SumsOverRows(const Options& options);
// Throws std::invalid_argument where masters of such a type cannot be trained: 8-bit moments and Adafactor are of
// float.
void CheckMasters(const Options& options, at::ScalarType master);

// One update in place of `param` and of `state`, a tensor per State. See the header of each optimizer.
void Update(const Options& options, const at::Tensor& param, const at::Tensor& grad, std::span<const at::Tensor> state,
            double lr, double grad_scale, int64_t step);

}  // namespace trainyard::optim
