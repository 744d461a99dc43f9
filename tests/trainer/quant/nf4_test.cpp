// NF4 against the published code book, against arrays made by the definitions (tests/golden/quant/generate.py), and one
// way of making it against the other.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/trainer/quant/arrays.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::quant {
namespace {

const std::map<std::string, at::Tensor>& Golden() {
  static const auto arrays = testing::ReadArrays("quant/nf4.safetensors");
  return arrays;
}

at::Tensor CodeBook() { return at::tensor(at::ArrayRef<float>(kNf4Code.data(), kNf4Code.size()), at::kFloat); }

TEST(Nf4, CodesAreQuantilesOfTheNormalDistribution) {
  EXPECT_LT((CodeBook() - Golden().at("code")).abs().max().item<float>(), 1e-6);
}

TEST(Nf4, EveryCodeIsReadAsItWasWritten) {
  const at::Tensor numbers = at::cat({CodeBook(), CodeBook().flip(0)}).mul(3).unsqueeze(0);
  EXPECT_TRUE(at::equal(Nf4Dequantise(Nf4Quantise(numbers), 32, at::kFloat), numbers));
}

class Nf4Rows : public ::testing::TestWithParam<int64_t> {
 protected:
  const at::Tensor& Of(const std::string& kind) const { return Golden().at(kind + "." + std::to_string(GetParam())); }
};

TEST_P(Nf4Rows, ArePackedAsTheReference) {
  ASSERT_EQ(Of("packed").size(1), Nf4RowBytes(GetParam()));
  EXPECT_TRUE(at::equal(Nf4Quantise(Of("x")), Of("packed")));
  const at::Tensor by_operations = at::empty_like(Of("packed"));
  ASSERT_TRUE(Nf4QuantiseByOperations(Of("x"), by_operations));
  EXPECT_TRUE(at::equal(by_operations, Of("packed")));
}

TEST_P(Nf4Rows, AreUnpackedAsTheReference) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor expected = type == at::kBFloat16 ? Of("half").view(at::kBFloat16) : Of("y").to(type);
    EXPECT_TRUE(at::equal(Nf4Dequantise(Of("packed"), GetParam(), type), expected)) << type;
    const at::Tensor by_operations = at::empty_like(expected);
    Nf4DequantiseByOperations(Of("packed"), by_operations);
    EXPECT_TRUE(at::equal(by_operations, expected)) << type;
  }
}

// A shard of any rows is those rows of the whole, and bfloat16 is read as the same numbers in float.
TEST_P(Nf4Rows, DependOnNothingButThemselves) {
  const at::Tensor half = Of("x").to(at::kBFloat16);
  EXPECT_TRUE(at::equal(Nf4Quantise(half), Nf4Quantise(half.to(at::kFloat))));
  EXPECT_TRUE(at::equal(Nf4Quantise(Of("x").narrow(0, 1, 3)), Of("packed").narrow(0, 1, 3)));
  EXPECT_EQ(Nf4Quantise(Of("x").narrow(0, 2, 0)).size(0), 0);
}

TEST_P(Nf4Rows, WithANumberThatIsNotFiniteAreRefused) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = Of("x").to(type).clone(), packed = at::empty_like(Of("packed"));
      x[3][GetParam() - 1] = bad;
      EXPECT_FALSE(Nf4QuantiseInto(x, packed));
      EXPECT_FALSE(Nf4QuantiseByOperations(x, packed));
      EXPECT_THROW(Nf4Quantise(x), c10::Error);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Nf4Rows, ::testing::Values(1, 2, 63, 64, 65, 128, 130, 300, 1027));

// What a block loses: half of the widest gap between codes, of its scale, and what rounding the scale adds.
TEST(Nf4, NormalWeightsComeBackNear) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({64, 4096}) * 0.02;
  const at::Tensor error = Nf4Dequantise(Nf4Quantise(x), 4096, at::kFloat) - x;
  const double relative = (error.norm() / x.norm()).item<double>();
  EXPECT_GT(relative, 0.085);
  EXPECT_LT(relative, 0.097);  // 4 bits of a normal distribution, absmax in blocks of 64
}

// More numbers than operations unpack at once.
TEST(Nf4, OperationsUnpackALargeMatrixInPieces) {
  at::manual_seed(6);
  const at::Tensor packed = Nf4Quantise(at::randn({1030, 4100}));
  at::Tensor rows = at::empty({1030, 4100}, at::kBFloat16);
  Nf4DequantiseByOperations(packed, rows);
  EXPECT_TRUE(at::equal(rows, Nf4Dequantise(packed, 4100, at::kBFloat16)));
}

}  // namespace
}  // namespace trainyard::quant
