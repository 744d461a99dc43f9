// Products of one row are those of the library.
#include "trainer/model/row_product.h"

#include <gtest/gtest.h>

#include "tests/trainer/engine/harness.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::model {
namespace {

using engine::testing::RelativeError;

// Of each, in double: a sum of n products is off by about sqrt(n) roundings of its type, here of fp32 while it is
// summed and of the type once.
TEST(RowProduct, IsThatOfTheLibrary) {
  at::Generator generator = at::detail::createCPUGenerator(11);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const double tolerance = type == at::kFloat ? 1e-6 : 3e-3;
      // Fewer than a stretch of lanes, no multiple of one, enough for several threads.
      for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {37, 129}, {900, 600}}) {
        const auto random = [&](at::IntArrayRef shape) { return at::randn(shape, generator, at::kFloat).to(type); };
        const at::Tensor x = random({1, in}), matrix = random({out, in}), bias = random({out});
        const at::NoGradGuard no_grad;
        const at::Tensor exact = at::matmul(x.to(at::kDouble), matrix.to(at::kDouble).t());
        const at::Tensor y = LinearProduct(x, matrix), with_bias = LinearProduct(x, matrix, bias);
        EXPECT_EQ(y.scalar_type(), type);
        EXPECT_LT(RelativeError(y, exact), tolerance) << out << " " << in;
        EXPECT_LT(RelativeError(with_bias, exact + bias.to(at::kDouble)), tolerance) << out << " " << in;
        const at::Tensor turned = matrix.t().contiguous();
        EXPECT_LT(RelativeError(AffineProduct(bias, x, turned), exact + bias.to(at::kDouble)), tolerance)
            << out << " " << in;
        // How the outputs are divided among threads does not matter.
        at::set_num_threads(3 - threads);
        EXPECT_TRUE(at::equal(LinearProduct(x, matrix), y));
        EXPECT_TRUE(at::equal(AffineProduct(bias, x, turned), AffineProduct(bias, x, turned)));
        at::set_num_threads(threads);
      }
    }
  }
}

TEST(RowProduct, OfAPackedMatrixIsThatOfTheUnpackedOne) {
  at::Generator generator = at::detail::createCPUGenerator(13);
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {1, 3}) {
      const at::Tensor x = at::randn({rows, 131}, generator, at::kFloat).to(type);
      const at::Tensor packed = quant::Nf4Quantise(at::randn({300, 131}, generator, at::kFloat));
      const at::Tensor bias = at::randn({300}, generator, at::kFloat).to(type);
      const at::Tensor matrix = quant::Nf4Dequantise(packed, 131, type);
      EXPECT_TRUE(at::equal(PackedLinearProduct(x, packed), LinearProduct(x, matrix)));
      EXPECT_TRUE(at::equal(PackedLinearProduct(x, packed, bias), LinearProduct(x, matrix, bias)));
    }
  }
}

// With a graph, and of several rows, it is the library's own product.
TEST(RowProduct, KeepsTheLibrarysWhereItIsTrainedWith) {
  at::Generator generator = at::detail::createCPUGenerator(12);
  const at::Tensor x = at::randn({1, 40}, generator, at::kFloat), more = at::randn({3, 40}, generator, at::kFloat);
  const at::Tensor matrix = at::randn({50, 40}, generator, at::kFloat).set_requires_grad(true);
  EXPECT_TRUE(LinearProduct(x, matrix).requires_grad());
  EXPECT_TRUE(at::equal(LinearProduct(x, matrix), at::linear(x, matrix)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(LinearProduct(more, matrix), at::linear(more, matrix)));
}

}  // namespace
}  // namespace trainyard::model
