// AdamW against a hand-computed step, against a reference loop in double, and against ATen's fused kernel.
#include "trainer/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trainyard::optim {
namespace {

TEST(AdamW, OneStepByHand) {
  // p=1, g=0.5, lr=0.1, wd=0.1, betas 0.9 and 0.99, eps=0:
  // decay 1*(1-0.01)=0.99; m=0.05, v=0.0025; m/0.1=0.5, sqrt(v/0.01)=0.5; p = 0.99 - 0.1*1 = 0.89
  at::Tensor p = at::ones({1}, at::kDouble), g = at::full({1}, 0.5, at::kDouble);
  at::Tensor m = at::zeros({1}, at::kDouble), v = at::zeros({1}, at::kDouble);
  AdamWUpdate(p, g, m, v, {0.9, 0.99, 0.0, 0.1}, 0.1, 1.0, 1);
  EXPECT_NEAR(p.item<double>(), 0.89, 1e-15);
  EXPECT_NEAR(m.item<double>(), 0.05, 1e-16);
  EXPECT_NEAR(v.item<double>(), 0.0025, 1e-16);
  // Second step, same gradient given as 5 with scale 0.1: m=0.095 /0.19 = 0.5, v=0.004975/0.0199=0.25 -> again 0.1.
  AdamWUpdate(p, g * 10, m, v, {0.9, 0.99, 0.0, 0.1}, 0.1, 0.1, 2);
  EXPECT_NEAR(p.item<double>(), 0.89 * 0.99 - 0.1, 1e-15);
}

void Compare(at::ScalarType type, double tolerance) {
  constexpr int64_t kN = 1003;
  const AdamWOptions o{0.9, 0.95, 1e-8, 0.1};
  const double lr = 1e-2, scale = 0.25;
  at::manual_seed(7);
  at::Tensor p = at::randn({kN}, type), m = at::zeros({kN}, type), v = at::zeros({kN}, type);
  std::vector<double> rp(kN), rm(kN, 0.0), rv(kN, 0.0);
  for (int64_t i = 0; i < kN; ++i) rp[i] = p[i].item<double>();
  for (int step = 1; step <= 4; ++step) {
    const at::Tensor g = at::randn({kN}, type);
    AdamWUpdate(p, g, m, v, o, lr, scale, step);
    for (int64_t i = 0; i < kN; ++i) {
      const double grad = scale * g[i].item<double>();
      rm[i] = o.beta1 * rm[i] + (1 - o.beta1) * grad;
      rv[i] = o.beta2 * rv[i] + (1 - o.beta2) * grad * grad;
      const double mh = rm[i] / (1 - std::pow(o.beta1, step)), vh = rv[i] / (1 - std::pow(o.beta2, step));
      rp[i] = rp[i] - lr * o.weight_decay * rp[i] - lr * mh / (std::sqrt(vh) + o.eps);
    }
  }
  for (int64_t i = 0; i < kN; ++i) ASSERT_NEAR(p[i].item<double>(), rp[i], tolerance) << "element " << i;
}

TEST(AdamW, FollowsTheReferenceLoopInDouble) { Compare(at::kDouble, 1e-14); }
TEST(AdamW, FollowsTheReferenceLoopInFloat) { Compare(at::kFloat, 1e-6); }

TEST(AdamW, AgreesWithTheFusedKernelOfATen) {
  at::manual_seed(3);
  at::Tensor p = at::randn({257}), g = at::randn({257}), m = at::randn({257}) * 0.1, v = at::rand({257});
  at::Tensor q = p.clone(), h = g.clone(), n = m.clone(), w = v.clone();
  AdamWUpdate(p, g, m, v, {0.9, 0.95, 1e-8, 0.1}, 1e-3, 1.0, 5);
  at::_fused_adamw_({q}, {h}, {n}, {w}, {}, {at::full({}, 5.0)}, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false);
  EXPECT_LT((p - q).abs().max().item<double>(), 1e-6);
  EXPECT_LT((v - w).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace trainyard::optim
