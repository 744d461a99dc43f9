// The global norm and its clip: exact sums, a fixed order, and what PyTorch makes of the same gradients.
#include "trainer/optim/clip.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <vector>

namespace trainyard::optim {
namespace {

TEST(Clip, SumOfSquaresCountsTheTail) {
  for (int64_t n : {0, 1, 7, 8, 9, 31, 40000}) {
    double expected = 0;
    for (int64_t i = 1; i <= n; ++i) expected += static_cast<double>(i * i);
    EXPECT_DOUBLE_EQ(SumSquares(at::arange(1, n + 1, at::kFloat)), expected) << n;
    EXPECT_DOUBLE_EQ(SumSquares(at::arange(1, n + 1, at::kDouble)), expected) << n;
  }
}

TEST(Clip, SumOfSquaresIsTheSameBitsForEveryNumberOfThreads_Bug37) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({300'001}), y = x.to(at::kDouble) * 1.1;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double one = SumSquares(x), two = SumSquares(y);
  for (int threads : {2, 3, 7}) {
    at::set_num_threads(threads);
    EXPECT_EQ(SumSquares(x), one) << threads;
    EXPECT_EQ(SumSquares(y), two) << threads;
  }
  at::set_num_threads(before);
  EXPECT_NEAR(one / x.to(at::kDouble).square().sum().item<double>(), 1.0, 1e-13);
}

TEST(Clip, FactorOnlyShrinks) {
  EXPECT_DOUBLE_EQ(ClipFactor(0.5, 1.0), 1.0);
  EXPECT_NEAR(ClipFactor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(ClipFactor(4.0, 0.0), 1.0);
}

TEST(Clip, IsThatOfPyTorch) {
  at::manual_seed(6);
  for (const double most : {0.5, 1e6}) {
    std::vector<at::Tensor> params;
    double squares = 0;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{31, 7}, {5}, {1, 1, 3}}) {
      at::Tensor p = at::zeros(shape, at::kDouble);
      p.mutable_grad() = at::randn(shape, at::kDouble);
      squares += SumSquares(p.grad());
      params.push_back(p);
    }
    const at::Tensor before = params[0].grad().clone();
    const double norm = torch::nn::utils::clip_grad_norm_(params, most);
    EXPECT_NEAR(std::sqrt(squares) / norm, 1.0, 1e-14);
    const at::Tensor ours = before * ClipFactor(std::sqrt(squares), most);
    EXPECT_LE(((ours - params[0].grad()).norm() / ours.norm()).item<double>(), 1e-14) << most;
  }
}

}  // namespace
}  // namespace trainyard::optim
