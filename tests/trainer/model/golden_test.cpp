// Logits, loss and gradients against Hugging Face's own models, from arrays that tests/golden/models/generate.py wrote.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/trainer/model/golden.h"

namespace trainyard::model {
namespace {

using engine::testing::PlainHost;
using engine::testing::RelativeError;

class GoldenModel : public testing::TestWithParam<const char*> {};

// Both sides in float: each is off by a few units of the last place from the exact value.
constexpr double kTolerance = 3e-6;

TEST_P(GoldenModel, GivesTransformersLogitsLossAndGradients) {
  at::set_num_threads(1);
  const Golden golden = ReadGolden(GetParam());
  const Config config = ConfigFrom(golden.config);
  for (const auto mode :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    PlainHost host(Units(config), at::kFloat, 1);
    const size_t parameters = golden.GiveTo(host);
    const auto model = Make(config, host, mode);
    const at::Tensor& tokens = golden.tensors.at("tokens");
    const double logits =
        RelativeError(model->Logits(tokens.narrow(1, 0, tokens.size(1) - 1)), golden.tensors.at("logits"));
    const at::Tensor loss = model->LossSum(tokens);
    const double loss_error = RelativeError(loss.reshape({1}), golden.tensors.at("loss"));
    loss.backward();
    double worst = 0;
    std::string worst_name;
    host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& p) {
      const double error = RelativeError(p.grad(), golden.tensors.at("g." + spec.name));
      EXPECT_LT(error, kTolerance) << spec.name;
      if (error > worst) worst = error, worst_name = spec.name;
    });
    EXPECT_LT(logits, kTolerance);
    EXPECT_LT(loss_error, kTolerance);
    // Every parameter of theirs is one of ours: parameters, gradients, tokens, logits, loss.
    EXPECT_EQ(golden.tensors.size(), 2 * parameters + 3);
    std::printf("%s: normwise differences: logits %.1e, loss %.1e, gradients at most %.1e (%s)\n", GetParam(), logits,
                loss_error, worst, worst_name.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel, testing::ValuesIn(kGoldenModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainyard::model
