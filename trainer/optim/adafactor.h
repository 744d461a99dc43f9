// Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, algorithms 4 and
// 5) without a first moment, with the learning rate as the schedule has it and decoupled weight decay. With t counted
// from 1, beta = 1 - t^-0.8, g the gradient of a matrix of R rows and C columns:
//   row_i = beta row_i + (1 - beta) (mean over j of g_ij^2 + 1e-30)
//   col_j = beta col_j + (1 - beta) (mean over i of g_ij^2 + 1e-30)
//   u_ij = g_ij / sqrt(row_i col_j / mean of all row)
//   p = (1 - lr wd) p - lr u / max(1, RMS(u) / d),  d = 1 (section 6)
// A vector keeps a variance per number in place of row and col, and u = g / sqrt(variance). torch.optim.Adafactor is
// the same but for its learning rate, which it caps by t^-0.5 and multiplies by the RMS of the parameter, and for
// 1e-30, in whose place it bounds the variance from below.
//
// A rank owns some rows. What it needs of the others is a sum per column and two numbers per parameter, so an update is
// in three parts with a sum over the owners after each of the first two:
//   Collect -> sums -> Combine -> sum of squares -> Apply
//
// Thread-safety: functions of their arguments; an object belongs to one thread.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/ATen.h>

namespace trainyard::optim {

struct AdafactorOptions {
  double weight_decay = 0.1;
};

// The update of the rows of one parameter that are here.
class AdafactorUpdate {
 public:
  // `param`, `grad`: these rows, float, contiguous, of the same shape; `rows`: of the whole parameter. `state`, float:
  // row_var of these rows and col_var of all columns, or the variance of a vector. The gradient is grad_scale * grad.
  // Parameters of more than two dimensions count as matrices of their rows. Tensors must outlive the object.
  AdafactorUpdate(const AdafactorOptions& options, at::Tensor param, at::Tensor grad, std::span<const at::Tensor> state,
                  int64_t rows, double lr, double grad_scale, int64_t step);

  // Numbers that Collect gives and Combine takes: C + 1 of a matrix, none of a vector.
  int64_t sums() const { return factored_ ? columns_ + 1 : 0; }
  // Updates row_var or variance of these rows. `sums`: of their squares by column, and of row_var.
  void Collect(std::span<double> sums);
  // Takes the sums over all rows and updates col_var. Returns the sum of u^2 over these rows.
  double Combine(std::span<const double> sums);
  // Takes the sum of u^2 over all rows and updates the parameter.
  void Apply(double squares);

 private:
  double Mean(double sum, int64_t count) const;

  const at::Tensor param_, grad_;  // [rows here, columns]; of a vector [1, rows here]
  const at::Tensor rows_, columns_state_;
  const bool factored_;
  const int64_t whole_rows_, columns_;
  const double keep_, lr_, scale_, decay_;  // decay_: 1 - beta
  at::Tensor row_factor_, column_factor_;   // u = g * row_factor * column_factor, the scale of g in the first
};

// All of it where all rows are here.
void AdafactorStep(const AdafactorOptions& options, const at::Tensor& param, const at::Tensor& grad,
                   std::span<const at::Tensor> state, double lr, double grad_scale, int64_t step);

}  // namespace trainyard::optim
