// Our own autograd functions against the same formulas left to autograd, in double.
#include "trainer/model/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace trainyard::model {
namespace {

using Fn = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

void ExpectSame(const Fn& ours, const Fn& plain, std::vector<at::Tensor> inputs, double tolerance = 1e-12) {
  at::manual_seed(1);
  std::vector<at::Tensor> other;
  for (at::Tensor& x : inputs) {
    other.push_back(x.clone().set_requires_grad(true));
    x.set_requires_grad(true);
  }
  const at::Tensor a = ours(inputs), b = plain(other);
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LT((a - b).abs().max().item<double>(), tolerance);
  const at::Tensor seed = at::randn(a.sizes(), at::kDouble);
  (a * seed).sum().backward();
  (b * seed).sum().backward();
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(inputs[i].grad().defined()) << "input " << i;
    EXPECT_GT(other[i].grad().abs().max().item<double>(), 0.0);
    EXPECT_LT((inputs[i].grad() - other[i].grad()).abs().max().item<double>(), tolerance) << "input " << i;
  }
}

at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

TEST(Ops, RmsNormHasValueAndGradientsOfItsFormula) {
  at::manual_seed(2);
  ExpectSame([](const auto& in) { return RmsNorm(in[0], in[1], 1e-5); },
             [](const auto& in) { return in[0] / at::sqrt(in[0].square().mean(-1, true) + 1e-5) * in[1]; },
             {Random({6, 10}), Random({10})});
}

TEST(Ops, RopeTurnsHalvesAndItsGradientTurnsBack) {
  at::manual_seed(3);
  const at::Tensor angle = Random({4, 1, 3});
  const at::Tensor cos = angle.cos(), sin = angle.sin();
  ExpectSame([&](const auto& in) { return Rope(in[0], cos, sin); },
             [&](const auto& in) {
               // Hugging Face: x * cos + rotate_half(x) * sin with doubled tables.
               const at::Tensor c = at::cat({cos, cos}, -1), s = at::cat({sin, sin}, -1);
               const at::Tensor half = at::cat({-in[0].narrow(-1, 3, 3), in[0].narrow(-1, 0, 3)}, -1);
               return in[0] * c + half * s;
             },
             {Random({2, 4, 5, 6})});
}

TEST(Ops, SwiGluHasValueAndGradientsOfItsFormula) {
  at::manual_seed(4);
  ExpectSame([](const auto& in) { return SwiGlu(in[0], in[1]); },
             [](const auto& in) { return in[0] * at::sigmoid(in[0]) * in[1]; }, {Random({5, 7}), Random({5, 7})});
}

TEST(Ops, HeadLossEqualsCrossEntropyWithAndWithoutWeights) {
  at::manual_seed(5);
  const at::Tensor targets = at::randint(0, 11, {9}, at::kLong);
  const at::Tensor weights = at::rand({9}, at::kDouble);
  ExpectSame(
      [&](const auto& in) { return HeadLossSum(in[0], in[1], targets, {}); },
      [&](const auto& in) { return at::cross_entropy_loss(at::mm(in[0], in[1].t()), targets, {}, at::Reduction::Sum); },
      {Random({9, 4}), Random({11, 4})});
  ExpectSame([&](const auto& in) { return HeadLossSum(in[0], in[1], targets, weights); },
             [&](const auto& in) {
               const at::Tensor each =
                   at::cross_entropy_loss(at::mm(in[0], in[1].t()), targets, {}, at::Reduction::None);
               return (each * weights).sum();
             },
             {Random({9, 4}), Random({11, 4})});
}

TEST(Ops, HeadLossInSeveralChunksEqualsCrossEntropy) {
  at::manual_seed(6);
  constexpr int64_t kVocab = 70000, kTokens = 150;  // 64 tokens a chunk: two whole ones and a rest
  const at::Tensor targets = at::randint(0, kVocab, {kTokens}, at::kLong);
  ExpectSame(
      [&](const auto& in) { return HeadLossSum(in[0], in[1], targets, {}); },
      [&](const auto& in) { return at::cross_entropy_loss(at::mm(in[0], in[1].t()), targets, {}, at::Reduction::Sum); },
      {Random({kTokens, 3}), Random({kVocab, 3}) * 0.1}, 1e-9);
}

TEST(Ops, HeadLossMakesNoGradientsWithoutGradMode) {
  const at::Tensor x = Random({4, 3}).set_requires_grad(true), head = Random({5, 3});
  const at::Tensor targets = at::zeros({4}, at::kLong);
  at::Tensor with = HeadLossSum(x, head, targets, {});
  at::NoGradGuard no_grad;
  at::Tensor without = HeadLossSum(x, head, targets, {});
  EXPECT_TRUE(with.requires_grad());
  EXPECT_FALSE(without.requires_grad());
  EXPECT_EQ(with.item<double>(), without.item<double>());
}

}  // namespace
}  // namespace trainyard::model
