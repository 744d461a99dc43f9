// An update is the same bytes wherever the flat parameters are cut, wherever the pieces lie in memory, and for every
// number of threads.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace trainyard::optim {
namespace {

constexpr double kRate = 1e-3, kScale = 0.7;
constexpr int64_t kStep = 3;

// Parameter, gradient and state of `n` elements each.
struct Flat {
  at::Tensor param, grad;
  std::vector<at::Tensor> state;

  static Flat Random(int64_t n, at::ScalarType type, const Options& options) {
    at::manual_seed(11);
    Flat flat{at::randn({n}, type), at::randn({n}, type), {}};
    for (const State& state : States(options, {n}, type)) flat.state.push_back(at::rand(state.shape, state.type));
    return flat;
  }
  // A copy of [lo, hi) that begins `offset` elements after an allocation.
  Flat Piece(int64_t lo, int64_t hi, int64_t offset) const {
    const auto cut = [&](const at::Tensor& t) {
      at::Tensor piece = at::empty({offset + hi - lo}, t.options()).narrow(0, offset, hi - lo);
      return piece.copy_(t.narrow(0, lo, hi - lo));
    };
    Flat piece{cut(param), cut(grad), {}};
    for (const at::Tensor& s : state) piece.state.push_back(cut(s));
    return piece;
  }
  void Step(const Options& options) { Update(options, param, grad, state, kRate, kScale, kStep); }
  bool Equals(const Flat& other, int64_t lo, int64_t hi) const {
    bool equal = at::equal(param, other.param.narrow(0, lo, hi - lo));
    for (size_t i = 0; i < state.size(); ++i) equal &= at::equal(state[i], other.state[i].narrow(0, lo, hi - lo));
    return equal;
  }
};

// Name, optimizer, type.
using Case = std::tuple<const char*, Options, at::ScalarType>;
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    cases.emplace_back("AdamW", AdamWOptions{}, type);
    cases.emplace_back("Sgd", SgdOptions{0.0, false, 0.1}, type);
    cases.emplace_back("SgdMomentum", SgdOptions{0.9, false, 0.1}, type);
    cases.emplace_back("SgdNesterov", SgdOptions{0.9, true, 0.1}, type);
  }
  return cases;
}

class Slicing : public testing::TestWithParam<Case> {
 protected:
  const Options options_ = std::get<1>(GetParam());
  const at::ScalarType type_ = std::get<2>(GetParam());
};

TEST_P(Slicing, EveryCutIntoTwoIsTheSameBytes) {
  constexpr int64_t kN = 67;
  const Flat start = Flat::Random(kN, type_, options_);
  Flat whole = start.Piece(0, kN, 0);
  whole.Step(options_);
  ASSERT_FALSE(at::equal(whole.param, start.param));
  for (int64_t cut = 0; cut <= kN; ++cut) {
    for (const auto& [lo, hi] : {std::pair<int64_t, int64_t>{0, cut}, {cut, kN}}) {
      Flat piece = start.Piece(lo, hi, 0);
      piece.Step(options_);
      ASSERT_TRUE(piece.Equals(whole, lo, hi)) << "[" << lo << ", " << hi << ")";
    }
  }
}

TEST_P(Slicing, ManyPiecesAnywhereInMemoryAreTheSameBytes) {
  constexpr int64_t kN = 5003;
  const Flat start = Flat::Random(kN, type_, options_);
  Flat whole = start.Piece(0, kN, 0);
  whole.Step(options_);
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<int64_t> cuts = {0, kN};
    for (uint64_t i = random() % 13; i > 0; --i) cuts.push_back(static_cast<int64_t>(random() % (kN + 1)));
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = 1; i < cuts.size(); ++i) {  // two equal cuts: an empty piece
      Flat piece = start.Piece(cuts[i - 1], cuts[i], static_cast<int64_t>(random() % 9));
      piece.Step(options_);
      ASSERT_TRUE(piece.Equals(whole, cuts[i - 1], cuts[i])) << "[" << cuts[i - 1] << ", " << cuts[i] << ")";
    }
  }
}

TEST_P(Slicing, EveryNumberOfThreadsIsTheSameBytes) {
  constexpr int64_t kN = 5 * (1 << 15) + 17;
  const Flat start = Flat::Random(kN, type_, options_);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  Flat whole = start.Piece(0, kN, 0);
  whole.Step(options_);
  for (int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    Flat again = start.Piece(0, kN, 0);
    again.Step(options_);
    EXPECT_TRUE(again.Equals(whole, 0, kN)) << threads;
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Slicing, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::string(std::get<0>(info.param)) + (std::get<2>(info.param) == at::kFloat ? "Float" : "Double");
});

}  // namespace
}  // namespace trainyard::optim
