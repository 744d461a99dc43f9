// AdamW with 8-bit moments against arrays made by the definitions (tests/golden/quant/generate.py): the maps, the
// codes, and six updates of a matrix, by the kernel and by ATen operations.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/trainer/quant/arrays.h"
#include "trainer/optim/eight_bit.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::optim {
namespace {

constexpr double kRate = 1e-2, kScale = 0.25;
const AdamW8bitOptions kOptions{{0.9, 0.95, 1e-8, 0.1}};

const std::map<std::string, at::Tensor>& Golden() {
  static const auto arrays = testing::ReadArrays("quant/adamw8bit.safetensors");
  return arrays;
}
at::Tensor Of(const std::string& kind, int step) { return Golden().at(kind + "." + std::to_string(step)); }

at::Tensor AsTensor(const std::array<float, 256>& map) {
  return at::tensor(at::ArrayRef<float>(map.data(), map.size()));
}

// The parameter and its moments, zero at first.
struct Matrix {
  at::Tensor param, exp_avg, exp_avg_sq;
  explicit Matrix(const at::Tensor& start) : param(start.clone()) {
    const auto states = States(kOptions, start.sizes(), at::kFloat);
    exp_avg = at::zeros(states.at(0).shape, states.at(0).type);
    exp_avg_sq = at::zeros(states.at(1).shape, states.at(1).type);
  }
  void Update(const at::Tensor& grad, int step) {
    AdamW8bitUpdate(param, grad, exp_avg, exp_avg_sq, kOptions, kRate, kScale, step);
  }
};

TEST(EightBit, MapsAreThoseOfThePaper) {
  EXPECT_TRUE(at::allclose(AsTensor(SignedMap()), Golden().at("signed"), 1e-6, 0));
  EXPECT_TRUE(at::allclose(AsTensor(UnsignedMap()), Golden().at("unsigned"), 1e-6, 0));
  EXPECT_TRUE(std::is_sorted(SignedMap().begin(), SignedMap().end()));
  EXPECT_TRUE(std::is_sorted(UnsignedMap().begin(), UnsignedMap().end()));
}

TEST(EightBit, EveryValueHasItsOwnCode) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(SignedCode(SignedMap()[code]), code);
    EXPECT_EQ(UnsignedCode(UnsignedMap()[code]), code);
  }
}

TEST(EightBit, CodesAreTheNearest) {
  const auto seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto distance = [](const std::array<float, 256>& map, float x) {
    double nearest = 2;
    for (const float value : map) nearest = std::min(nearest, std::abs(double{value} - x));
    return nearest;
  };
  for (int i = 0; i < 20000; ++i) {
    const float x = uniform(random) * std::pow(10.0F, -4 - 4 * uniform(random));
    // Within rounding of the midpoint between two.
    EXPECT_LE(std::abs(double{SignedMap()[SignedCode(x)]} - x), distance(SignedMap(), x) * (1 + 1e-6)) << x;
    const float y = std::abs(x);
    if (y < UnsignedMap()[1]) {
      EXPECT_EQ(UnsignedCode(y), 1) << y;
    } else {
      EXPECT_LE(std::abs(double{UnsignedMap()[UnsignedCode(y)]} - y), distance(UnsignedMap(), y) * (1 + 1e-6)) << y;
    }
  }
}

// What an update divides by the root of must not vanish beside a larger neighbour.
TEST(EightBit, ASecondMomentAboveZeroStaysAbove) {
  EXPECT_EQ(UnsignedCode(0.0F), 0);
  EXPECT_EQ(UnsignedCode(1e-30F), 1);
  Matrix matrix(at::zeros({1, 4096}));
  at::Tensor grad = at::full({1, 4096}, 1e-12);
  grad[0][0] = 1e6;
  matrix.Update(grad, 1);
  at::Tensor v = at::empty({4096}, at::kFloat);
  UnpackMoments(UnsignedMap(), matrix.exp_avg_sq.const_data_ptr<uint8_t>(), 4096, v.mutable_data_ptr<float>());
  EXPECT_TRUE((v > 0).all().item<bool>());
}

TEST(AdamW8bit, UpdatesAsTheReference) {
  Matrix matrix(Golden().at("start"));
  for (int step = 1; step <= 6; ++step) {
    matrix.Update(Of("grad", step), step);
    EXPECT_TRUE(at::allclose(matrix.param, Of("param", step), 1e-6, 1e-7)) << "step " << step;
    EXPECT_TRUE(at::equal(matrix.exp_avg, Of("exp_avg", step))) << "step " << step;
    EXPECT_TRUE(at::equal(matrix.exp_avg_sq, Of("exp_avg_sq", step))) << "step " << step;
  }
}

TEST(AdamW8bit, OperationsGiveTheSameMoments) {
  Matrix kernel(Golden().at("start")), operations(Golden().at("start"));
  for (int step = 1; step <= 6; ++step) {
    kernel.Update(Of("grad", step), step);
    AdamW8bitByOperations(operations.param, Of("grad", step), operations.exp_avg, operations.exp_avg_sq, kOptions,
                          kRate, kScale, step);
    EXPECT_TRUE(at::allclose(kernel.param, operations.param, 1e-6, 1e-8)) << "step " << step;
    EXPECT_TRUE(at::equal(kernel.exp_avg, operations.exp_avg)) << "step " << step;
    EXPECT_TRUE(at::equal(kernel.exp_avg_sq, operations.exp_avg_sq)) << "step " << step;
  }
}

TEST(AdamW8bit, EveryCutOfRowsAndEveryNumberOfThreadsIsTheSameBytes) {
  const int before = at::get_num_threads();
  Matrix whole(Golden().at("start"));
  for (int step = 1; step <= 6; ++step) whole.Update(Of("grad", step), step);
  const int64_t rows = whole.param.size(0);
  for (int64_t cut = 0; cut <= rows; ++cut) {
    at::set_num_threads(static_cast<int>(cut % 3) + 1);
    for (const auto& [lo, hi] : {std::pair<int64_t, int64_t>{0, cut}, {cut, rows}}) {
      Matrix piece(Golden().at("start"));
      piece.param = piece.param.narrow(0, lo, hi - lo).clone();
      piece.exp_avg = piece.exp_avg.narrow(0, lo, hi - lo).clone();
      piece.exp_avg_sq = piece.exp_avg_sq.narrow(0, lo, hi - lo).clone();
      for (int step = 1; step <= 6; ++step) piece.Update(Of("grad", step).narrow(0, lo, hi - lo), step);
      EXPECT_TRUE(at::equal(piece.param, whole.param.narrow(0, lo, hi - lo))) << cut;
      EXPECT_TRUE(at::equal(piece.exp_avg, whole.exp_avg.narrow(0, lo, hi - lo))) << cut;
      EXPECT_TRUE(at::equal(piece.exp_avg_sq, whole.exp_avg_sq.narrow(0, lo, hi - lo))) << cut;
    }
  }
  at::set_num_threads(before);
}

TEST(AdamW8bit, KeepsSmallMatricesAndVectorsAsAdamW) {
  const auto names = [](at::IntArrayRef shape) {
    const auto states = States(kOptions, shape, at::kFloat);
    return std::string(states.at(0).name) + " " + states.at(1).name;
  };
  EXPECT_EQ(names({8192}), "exp_avg exp_avg_sq");
  EXPECT_EQ(names({63, 65}), "exp_avg exp_avg_sq");
  EXPECT_EQ(names({64, 64}), "exp_avg_8bit exp_avg_sq_8bit");
  // A shard of a large matrix is as the matrix, however few its rows.
  EXPECT_EQ(States(kOptions, {4096, 2}, at::kFloat).at(0).shape, (std::vector<int64_t>{4096, 6}));
  at::manual_seed(3);
  const at::Tensor start = at::randn({63, 65}), grad = at::randn({63, 65});
  at::Tensor p = start.clone(), q = start.clone();
  const std::vector<at::Tensor> one = {at::zeros({63, 65}), at::zeros({63, 65})};
  const std::vector<at::Tensor> two = {at::zeros({63, 65}), at::zeros({63, 65})};
  Update(kOptions, p, grad, one, kRate, kScale, 1);
  Update(AdamWOptions(kOptions), q, grad, two, kRate, kScale, 1);
  EXPECT_TRUE(at::equal(p, q));
}

TEST(AdamW8bit, RefusesWhatItCannotTrain) {
  EXPECT_THROW(CheckMasters(kOptions, at::kDouble), std::invalid_argument);
  EXPECT_NO_THROW(CheckMasters(kOptions, at::kFloat));
  Matrix matrix(Golden().at("start"));
  EXPECT_THROW(AdamW8bitUpdate(matrix.param, Of("grad", 1), matrix.exp_avg.narrow(1, 0, 8), matrix.exp_avg_sq, kOptions,
                               kRate, kScale, 1),
               c10::Error);
}

}  // namespace
}  // namespace trainyard::optim
