// Twenty updates under a moving learning rate against PyTorch's own optimizers in fp64: the same parameters and the
// same state, norm by norm, to 1e-6 in fp32 and to rounding in fp64.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"

namespace trainyard::optim {
namespace {

constexpr int kSteps = 20;
constexpr double kScale = 0.25;  // of the gradient, as the loop gives it
const std::vector<std::vector<int64_t>> kShapes = {{257}, {33, 7}, {1}, {64, 129}};

double RateOf(int64_t step) {
  return LearningRate({Schedule::Type::kWarmupStableDecay, 1e-2, 5, kSteps, 0.1, 8, Schedule::Shape::kSqrt}, step);
}

// What PyTorch has for our options, its learning rate, and its state of one parameter in our order.
class Reference {
 public:
  Reference(const std::vector<at::Tensor>& params, const Options& options) : options_(options) {
    if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
      optimizer_ = std::make_unique<torch::optim::SGD>(params, torch::optim::SGDOptions(1.0)
                                                                   .momentum(sgd->momentum)
                                                                   .weight_decay(sgd->weight_decay)
                                                                   .nesterov(sgd->nesterov));
    } else {
      const auto& adam = std::get<AdamWOptions>(options);
      optimizer_ = std::make_unique<torch::optim::AdamW>(params, torch::optim::AdamWOptions(1.0)
                                                                     .betas({adam.beta1, adam.beta2})
                                                                     .eps(adam.eps)
                                                                     .weight_decay(adam.weight_decay));
    }
  }
  void Step(double rate) {
    optimizer_->param_groups()[0].options().set_lr(rate);
    optimizer_->step();
  }
  std::vector<at::Tensor> StateOf(const at::Tensor& param) {
    if (States(options_, param.sizes(), at::kDouble).empty()) return {};
    const auto& state = optimizer_->state().at(param.unsafeGetTensorImpl());
    if (std::holds_alternative<SgdOptions>(options_)) {
      return {static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer()};
    }
    auto& adam = static_cast<torch::optim::AdamWParamState&>(*state);
    return {adam.exp_avg(), adam.exp_avg_sq()};
  }

 private:
  Options options_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

double RelativeError(const at::Tensor& a, const at::Tensor& reference) {
  return ((a.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

void Compare(const Options& options, at::ScalarType type, double tolerance) {
  at::manual_seed(17);
  std::vector<at::Tensor> theirs, ours;
  std::vector<std::vector<at::Tensor>> states;
  for (const auto& shape : kShapes) {
    const at::Tensor p = at::randn(shape);  // fp32 values, so that both start at the same point
    theirs.push_back(p.to(at::kDouble).set_requires_grad(true));
    ours.push_back(p.to(type).clone());
    states.emplace_back();
    for (const State& state : States(options, shape, type)) states.back().push_back(at::zeros(state.shape, type));
  }
  Reference reference(theirs, options);
  for (int step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor g = at::randn(kShapes[i]);
      theirs[i].mutable_grad() = g.to(at::kDouble) * kScale;
      Update(options, ours[i], g.to(type), states[i], RateOf(step), kScale, step);
    }
    reference.Step(RateOf(step));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(RelativeError(ours[i], theirs[i].detach()), tolerance) << "parameter " << i;
    const std::vector<at::Tensor> expected = reference.StateOf(theirs[i]);
    ASSERT_EQ(expected.size(), states[i].size());
    for (size_t s = 0; s < expected.size(); ++s) {
      EXPECT_LE(RelativeError(states[i][s], expected[s]), tolerance) << "state " << s << " of " << i;
    }
  }
}

struct Case {
  const char* name;
  Options options;
};
const Case kCases[] = {
    {"AdamW", AdamWOptions{0.9, 0.95, 1e-8, 0.1}},
    {"AdamWWithoutDecay", AdamWOptions{0.8, 0.999, 1e-6, 0.0}},
    {"Sgd", SgdOptions{0.0, false, 0.0}},
    {"SgdWithDecay", SgdOptions{0.0, false, 0.05}},
    {"SgdWithMomentum", SgdOptions{0.9, false, 0.05}},
    {"SgdWithNesterovMomentum", SgdOptions{0.9, true, 0.05}},
};

class AgainstPyTorch : public testing::TestWithParam<Case> {};
TEST_P(AgainstPyTorch, InFloat) { Compare(GetParam().options, at::kFloat, 1e-6); }
TEST_P(AgainstPyTorch, InDouble) { Compare(GetParam().options, at::kDouble, 1e-13); }
INSTANTIATE_TEST_SUITE_P(Optimizers, AgainstPyTorch, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trainyard::optim
