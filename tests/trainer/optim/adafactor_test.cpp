// Adafactor against torch.optim.Adafactor in float64 (arrays of tests/golden/quant/generate.py), and cut into rows of
// several owners.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/quant/arrays.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::optim {
namespace {

constexpr double kRate = 1e-2, kScale = 0.25;
constexpr int kSteps = 6;
const AdafactorOptions kOptions{.weight_decay = 0.1};

const std::map<std::string, at::Tensor>& Golden() {
  static const auto arrays = testing::ReadArrays("quant/adafactor.safetensors");
  return arrays;
}
at::Tensor Grad(const std::string& name, int step) { return Golden().at("grad." + name + "." + std::to_string(step)); }

double RelativeError(const at::Tensor& a, const at::Tensor& reference) {
  return ((a.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

class Adafactor : public ::testing::TestWithParam<const char*> {
 protected:
  const at::Tensor start_ = Golden().at(std::string("start.") + GetParam());
  std::vector<at::Tensor> NewState() const {
    std::vector<at::Tensor> state;
    for (const State& s : States(kOptions, start_.sizes(), at::kFloat)) state.push_back(at::zeros(s.shape, s.type));
    return state;
  }
};

TEST_P(Adafactor, UpdatesAsPyTorch) {
  at::Tensor param = start_.clone();
  const std::vector<at::Tensor> state = NewState();
  for (int step = 1; step <= kSteps; ++step)
    Update(kOptions, param, Grad(GetParam(), step), state, kRate, kScale, step);
  const std::string name = GetParam();
  EXPECT_LE(RelativeError(param, Golden().at("param." + name)), 1e-6);
  const auto states = States(kOptions, start_.sizes(), at::kFloat);
  for (size_t i = 0; i < states.size(); ++i) {
    const at::Tensor& expected = Golden().at(std::string(states[i].name) + "." + name);
    EXPECT_LE(RelativeError(state[i], expected.reshape(state[i].sizes())), 1e-6) << states[i].name;
  }
}

// Two owners of some rows each, one of them perhaps of none, who add up what they collect.
TEST_P(Adafactor, OwnersOfRowsTogetherDoTheSame) {
  at::Tensor whole = start_.clone();
  const std::vector<at::Tensor> state = NewState();
  for (int step = 1; step <= kSteps; ++step)
    Update(kOptions, whole, Grad(GetParam(), step), state, kRate, kScale, step);
  const int64_t rows = start_.size(0);
  for (const int64_t cut : {int64_t{0}, int64_t{1}, rows / 2, rows}) {
    const std::vector<std::pair<int64_t, int64_t>> owners = {{0, cut}, {cut, rows}};
    std::vector<at::Tensor> params;
    std::vector<std::vector<at::Tensor>> states;
    for (const auto& [lo, hi] : owners) {
      params.push_back(start_.narrow(0, lo, hi - lo).clone());
      states.push_back(NewState());
      states.back()[0] = states.back()[0].narrow(0, lo, hi - lo).clone();
    }
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<AdafactorUpdate> updates;
      for (size_t o = 0; o < owners.size(); ++o) {
        const auto [lo, hi] = owners[o];
        updates.emplace_back(kOptions, params[o], Grad(GetParam(), step).narrow(0, lo, hi - lo), states[o], rows, kRate,
                             kScale, step);
      }
      std::vector<double> sums(static_cast<size_t>(updates[0].sums())), part(sums.size());
      for (AdafactorUpdate& update : updates) {
        update.Collect(part);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
      }
      double squares = 0;
      for (AdafactorUpdate& update : updates) squares += update.Combine(sums);
      for (AdafactorUpdate& update : updates) update.Apply(squares);
    }
    EXPECT_TRUE(at::allclose(at::cat(params), whole, 1e-5, 1e-7)) << cut;
    for (const auto& kept : states) {
      if (kept.size() > 1) {
        EXPECT_TRUE(at::allclose(kept[1], state[1], 1e-5, 0)) << "statistics of columns, cut at " << cut;
      }
    }
  }
}

TEST_P(Adafactor, EveryNumberOfThreadsIsTheSameBytes) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    at::Tensor param = start_.clone();
    const std::vector<at::Tensor> state = NewState();
    for (int step = 1; step <= kSteps; ++step) {
      Update(kOptions, param, Grad(GetParam(), step), state, kRate, kScale, step);
    }
    results.push_back(at::cat({param.flatten(), state[0].flatten(), state.back().flatten()}));
    EXPECT_TRUE(at::equal(results.back(), results.front())) << threads;
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Adafactor, ::testing::Values("matrix", "vector", "row", "column"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AdafactorUpdate, IsClipped) {
  at::Tensor param = at::ones({4, 8});
  const std::vector<at::Tensor> state = {at::zeros({4}), at::zeros({8})};
  const AdafactorOptions options{.weight_decay = 0};
  Update(options, param, at::ones({4, 8}), state, 0.1, 1, 1);
  Update(options, param, at::full({4, 8}, 100.0), state, 0.1, 1, 2);  // 1.32 long before it is clipped
  EXPECT_TRUE(at::allclose(param, at::full({4, 8}, 0.8), 1e-6)) << param;
}

TEST(AdafactorUpdate, LeavesWhatHasNoGradientAlone) {
  at::Tensor param = at::ones({4, 8}), grad = at::zeros({4, 8});
  grad[2][3] = 1e4;
  const std::vector<at::Tensor> state = {at::zeros({4}), at::zeros({8})};
  Update(AdafactorOptions{.weight_decay = 0}, param, grad, state, 0.1, 1, 1);
  EXPECT_NEAR(param[2][3].item<double>(), 0.9, 1e-6);
  EXPECT_EQ(at::count_nonzero(param - 1).item<int64_t>(), 1);
}

}  // namespace
}  // namespace trainyard::optim
