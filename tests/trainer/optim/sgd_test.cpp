// SGD worked out by hand, and what Update does not accept.
#include "trainer/optim/sgd.h"

#include <gtest/gtest.h>

#include <string>

#include "trainer/optim/optimizer.h"

namespace trainyard::optim {
namespace {

at::Tensor Scalar(double value) { return at::full({1}, value, at::kDouble); }

TEST(Sgd, TwoStepsByHand) {
  // No momentum, p = 1, gradient 0.5 given as 5 with scale 0.1, decay 0.1, lr 0.1: g = 0.6, p = 0.94; then g = 0.594.
  at::Tensor p = Scalar(1), g = Scalar(5);
  SgdUpdate(p, g, {}, {.weight_decay = 0.1}, 0.1, 0.1);
  EXPECT_NEAR(p.item<double>(), 0.94, 1e-15);
  SgdUpdate(p, g, {}, {.weight_decay = 0.1}, 0.1, 0.1);
  EXPECT_NEAR(p.item<double>(), 0.94 - 0.0594, 1e-15);
  EXPECT_EQ(g.item<double>(), 5) << "the gradient itself is not touched";
}

TEST(Sgd, MomentumByHand) {
  // mu = 0.9, gradient 1, lr 0.1: buffer 1, 1.9; p = 1 - 0.1 - 0.19.
  at::Tensor p = Scalar(1), b = Scalar(0);
  for (int step = 0; step < 2; ++step) SgdUpdate(p, Scalar(1), b, {.momentum = 0.9}, 0.1, 1.0);
  EXPECT_NEAR(p.item<double>(), 0.71, 1e-15);
  EXPECT_NEAR(b.item<double>(), 1.9, 1e-15);
}

TEST(Sgd, NesterovByHand) {
  // As above, but each step goes by 1 + 0.9 * buffer: 1.9, 2.71.
  at::Tensor p = Scalar(1), b = Scalar(0);
  for (int step = 0; step < 2; ++step) SgdUpdate(p, Scalar(1), b, {.momentum = 0.9, .nesterov = true}, 0.1, 1.0);
  EXPECT_NEAR(p.item<double>(), 1 - 0.19 - 0.271, 1e-15);
}

TEST(Optimizer, NamesTheStateThatItKeeps) {
  const auto names = [](const Options& options) {
    std::string all;
    for (const State& state : States(options, {3, 2}, at::kFloat)) all += std::string(state.name) + " ";
    return all;
  };
  EXPECT_EQ(names(AdamWOptions{}), "exp_avg exp_avg_sq ");
  EXPECT_EQ(names(SgdOptions{.momentum = 0.9}), "momentum_buffer ");
  EXPECT_EQ(names(SgdOptions{}), "");
}

TEST(Optimizer, LeavesNormsAndBiasesWithoutDecay) {
  EXPECT_EQ(std::get<AdamWOptions>(WithoutDecay(AdamWOptions{.beta1 = 0.8, .weight_decay = 1})).weight_decay, 0);
  EXPECT_EQ(std::get<AdamWOptions>(WithoutDecay(AdamWOptions{.beta1 = 0.8})).beta1, 0.8);
  EXPECT_EQ(std::get<SgdOptions>(WithoutDecay(SgdOptions{.momentum = 0.9, .weight_decay = 1})).weight_decay, 0);
}

TEST(Optimizer, RefusesStateOfAnother) {
  const std::vector<at::Tensor> two = {Scalar(0), Scalar(0)}, none;
  EXPECT_THROW(Update(SgdOptions{.momentum = 0.9}, Scalar(1), Scalar(1), two, 0.1, 1, 1), c10::Error);
  EXPECT_THROW(Update(AdamWOptions{}, Scalar(1), Scalar(1), none, 0.1, 1, 1), c10::Error);
  EXPECT_THROW(SgdUpdate(Scalar(1), Scalar(1), Scalar(0), {}, 0.1, 1), c10::Error);
  EXPECT_THROW(SgdUpdate(at::zeros({2}), at::zeros({3}), {}, {}, 0.1, 1), c10::Error);
  EXPECT_THROW(SgdUpdate(at::zeros({2}, at::kHalf), at::zeros({2}, at::kHalf), {}, {}, 0.1, 1), c10::Error);
}

}  // namespace
}  // namespace trainyard::optim
