#include "trainer/dist/rank_order_sum.h"

#include <gtest/gtest.h>

#include <vector>

namespace trainyard::dist {
namespace {

// With so many ranks a running sum in bfloat16 stands still: its eight bits lose every further addend.
TEST(RankOrderSum, Of384RanksInBfloat16IsRoundedOnce_Bug38) {
  constexpr int64_t kRanks = 384, kElements = 5000;
  at::manual_seed(384);
  std::vector<at::Tensor> parts;
  at::Tensor exact = at::zeros({kElements}, at::kDouble), running = at::zeros({kElements}, at::kBFloat16);
  for (int64_t r = 0; r < kRanks; ++r) {
    parts.push_back((at::rand({kElements}) + 0.5).to(at::kBFloat16));
    exact += parts.back().to(at::kDouble);
    running += parts.back();
  }
  at::Tensor out = at::empty({kElements}, at::kBFloat16);
  RankOrderSum(out, parts);
  const auto error = [&](const at::Tensor& sum) {
    return ((sum.to(at::kDouble) - exact).abs() / exact).max().item<double>();
  };
  EXPECT_LE(error(out), 1.0 / 256) << "half of the last of eight bits";
  EXPECT_GT(error(running), 0.05) << "what the test would show elsewhere";
}

}  // namespace
}  // namespace trainyard::dist
