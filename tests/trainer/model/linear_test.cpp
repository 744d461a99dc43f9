// A linear layer in each of its forms against plain autograd of its formula, and what it keeps; and dropout.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <vector>

#include "trainer/model/linear.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::model {
namespace {

constexpr int64_t kTokens = 12, kIn = 70, kOut = 9, kRank = 3;

at::Tensor Numbers(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::dtype(at::kDouble)).to(type);
}

Dropout SomeDropout(double rate) { return {rate, 0x0123456789abcdefU, {5000000003, 7}, 2}; }

std::string Kept(const at::Tensor& row) {
  std::string kept;
  for (int64_t i = 0; i < row.numel(); ++i) kept += row[i].item<float>() != 0 ? 'x' : '.';
  return kept;
}

// Made from the definition by other means (Philox and the hash in Python).
TEST(Dropout, IsThisMask) {
  const at::Tensor y = Drop(at::ones({4, 40}), SomeDropout(0.25));
  EXPECT_EQ(Kept(y[0]), "x..xxxxxxxxx.x.x.xxxxxxx..xx.xxxxxxxxxxx");
  EXPECT_EQ(Kept(y[1]), "xxxxxxx.xxxxx.xxxx.xxx...xxxxxxxxxxx.xx.");
  EXPECT_EQ(Kept(y[2]), "xxxx.xx.xx.x.xxx..xx.xxx.xxx.xx..xxxxx..");
  EXPECT_EQ(Kept(y[3]), ".xxx.xxxx.xxxxxx.xxxx.xxxxxxxxxxx..xxxxx");
}

TEST(Dropout, IsTheSameHoweverABatchIsDivided) {
  const at::Tensor x = Numbers({8, 33}, 1, at::kFloat);
  const at::Tensor whole = Drop(x, SomeDropout(0.5));
  for (const int64_t rows : {2, 4}) {
    for (int64_t first = 0; first < 8; first += rows) {
      Dropout part = SomeDropout(0.5);
      part.place.first_sequence += first / part.length;
      EXPECT_TRUE(at::equal(Drop(x.narrow(0, first, rows), part), whole.narrow(0, first, rows)));
    }
  }
}

TEST(Dropout, HasTheSameBitsByOperations) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const int64_t width : {1, 8, 33, 300}) {
      const at::Tensor x = Numbers({6, width}, 2, type);
      EXPECT_TRUE(at::equal(Drop(x, SomeDropout(0.3)), DropByOperations(x, SomeDropout(0.3)))) << type << width;
      const at::Tensor strided = Numbers({width, 6}, 2, type).t();
      EXPECT_TRUE(at::equal(Drop(strided, SomeDropout(0.3)), DropByOperations(strided, SomeDropout(0.3))));
    }
  }
}

// Shares within five standard deviations of 2^20 draws: of all, of rows, of columns, and of pairs that would follow
// each other were the hash weak.
TEST(Dropout, DropsItsShareEverywhere) {
  Dropout dropout = SomeDropout(0.1);
  dropout.length = 64;
  const at::Tensor dropped = Drop(at::ones({1024, 1024}), dropout).eq(0).to(at::kDouble);
  const auto expect = [](const at::Tensor& shares, double p, double draws, const char* what) {
    EXPECT_LT((shares - p).abs().max().item<double>(), 5 * std::sqrt(p * (1 - p) / draws)) << what;
  };
  expect(dropped.mean(), 0.1, 1 << 20, "all");
  expect(dropped.mean(0), 0.1, 1024, "columns");
  expect(dropped.mean(1), 0.1, 1024, "rows");
  expect((dropped.narrow(1, 0, 1023) * dropped.narrow(1, 1, 1023)).mean(), 0.01, 1 << 20, "neighbours in a row");
  expect((dropped.narrow(0, 0, 1023) * dropped.narrow(0, 1, 1023)).mean(), 0.01, 1 << 20, "neighbours in a column");
  for (const int what : {0, 1, 2}) {
    Dropout other = dropout;
    if (what == 0) other.key += 1;
    if (what == 1) other.place.step += 1;
    if (what == 2) other.place.first_sequence += 16;
    const at::Tensor also = Drop(at::ones({1024, 1024}), other).eq(0).to(at::kDouble);
    expect((dropped * also).mean(), 0.01, 1 << 20, "another adapter, step or sequence");
  }
}

struct Form {
  bool input_first, bias, adapter, packed, trained;
  double dropout;
};
std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (const bool input_first : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool packed : {false, true}) {
        forms.push_back({input_first, bias, false, packed, !packed, 0});
        for (const double dropout : {0.0, 0.4}) forms.push_back({input_first, bias, true, packed, false, dropout});
      }
    }
  }
  return forms;
}

at::Tensor Leaf(const at::Tensor& t, bool trained) { return t.set_requires_grad(trained); }

Linear Make(const Form& f) {
  Linear l;
  const at::Tensor numbers = Numbers(f.input_first ? at::IntArrayRef{kIn, kOut} : at::IntArrayRef{kOut, kIn}, 3);
  l.form.input_first = f.input_first;
  l.weight = f.packed ? quant::Nf4Quantise(numbers) : Leaf(numbers, f.trained);
  if (f.packed) l.form.packed_row = numbers.size(1);
  if (f.bias) l.bias = Leaf(Numbers({kOut}, 4), f.trained);
  if (!f.adapter) return l;
  l.down = Leaf(Numbers({kRank, kIn}, 5), true), l.up = Leaf(Numbers({kOut, kRank}, 6), true);
  l.form.scale = 0.7;
  if (f.dropout > 0) l.form.dropout = SomeDropout(f.dropout);
  return l;
}

// The formula by plain operations that autograd knows.
at::Tensor Formula(const Linear& l, const at::Tensor& x) {
  at::Tensor w = l.packed() ? quant::Nf4Dequantise(l.weight, l.form.packed_row, at::kDouble) : l.weight;
  if (l.form.input_first) w = w.t();
  at::Tensor y = x.matmul(w.t());
  if (l.bias.defined()) y = y + l.bias;
  if (!l.adapted()) return y;
  const at::Tensor mask = Drop(at::ones(x.sizes(), x.options().requires_grad(false)), l.form.dropout);
  return y + l.form.scale * (x * mask).matmul(l.down.t()).matmul(l.up.t());
}

double Off(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

TEST(LinearLayer, HasTheValueAndTheGradientsOfItsFormula) {
  for (const Form& f : AllForms()) {
    const Linear linear = Make(f);
    SCOPED_TRACE(::testing::Message() << "input first " << f.input_first << ", bias " << f.bias << ", adapter "
                                      << f.adapter << ", packed " << f.packed << ", dropout " << f.dropout);
    const at::Tensor seed = Numbers({kTokens, kOut}, 8);
    std::vector<at::Tensor> leaves{Leaf(Numbers({kTokens, kIn}, 7), true)};
    for (const at::Tensor& t : {linear.weight, linear.bias, linear.down, linear.up}) {
      if (t.defined() && t.requires_grad()) leaves.push_back(t);
    }
    const at::Tensor y = Apply(linear, leaves[0]), want = Formula(linear, leaves[0]);
    EXPECT_LT(Off(y, want), 1e-14);
    EXPECT_EQ(linear.outputs(), kOut);
    const auto got = torch::autograd::grad({y}, leaves, {seed}), wanted = torch::autograd::grad({want}, leaves, {seed});
    for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(Off(got[i], wanted[i]), 1e-13) << "leaf " << i;
  }
}

// What enters the first block of a frozen model wants no gradient.
TEST(LinearLayer, WorksWhereItsInputWantsNoGradient) {
  const Linear linear = Make({false, true, true, true, false, 0.4});
  const at::Tensor x = Numbers({kTokens, kIn}, 7), seed = Numbers({kTokens, kOut}, 8);
  const auto got = torch::autograd::grad({Apply(linear, x)}, {linear.down, linear.up}, {seed});
  const auto want = torch::autograd::grad({Formula(linear, x)}, {linear.down, linear.up}, {seed});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(Off(got[i], want[i]), 1e-13);
}

TEST(LinearLayer, OfFrozenMatricesKeepsNothingOfItsInput) {
  for (const bool packed : {false, true}) {
    for (const bool adapter : {false, true}) {
      const Linear linear = Make({false, false, adapter, packed, false, 0});
      const at::Tensor leaf = Leaf(Numbers({kTokens, kIn}, 7), true);
      at::Tensor x = leaf * 2;
      const c10::weak_intrusive_ptr<c10::TensorImpl> input(x.getIntrusivePtr());
      const at::Tensor y = Apply(linear, x);
      x.reset();
      EXPECT_EQ(input.expired(), !adapter) << "packed " << packed << ", adapter " << adapter;
      EXPECT_TRUE(y.requires_grad());
    }
  }
}

}  // namespace
}  // namespace trainyard::model
