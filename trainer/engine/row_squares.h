// Sums of squares row by row, in double and in an order that depends on the row alone: a row is never cut, so whoever
// owns it gets the same bits. Thread-safety: functions of their arguments.
#pragma once

#include <vector>

#include <ATen/ATen.h>

namespace trainyard::engine {

// One sum per row (dimension 0) of a contiguous float or double tensor; a tensor of one dimension has rows of one
// element. On the CPU the order is that of optim::SumSquares, elsewhere that of RowSquaresByHalves.
std::vector<double> RowSquares(const at::Tensor& rows);

// The right half of each row is added to the left one until one element is left: element-wise operations only, so that
// no kernel's choice of blocks, which depends on how many rows there are, can change the order.
std::vector<double> RowSquaresByHalves(const at::Tensor& rows);

}  // namespace trainyard::engine
