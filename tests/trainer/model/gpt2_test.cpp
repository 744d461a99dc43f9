// What tests/trainer/model/golden_test.cpp does not see of GPT-2: names, initial values, positions, refusals, and that
// checkpointing keeps the bits.
#include "trainer/model/gpt2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>

#include "tests/trainer/engine/harness.h"

namespace trainyard::model {
namespace {

using engine::testing::Gradients;
using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RunRanks;
using engine::testing::Tokens;
using Mode = ActivationCheckpointing;

Gpt2Config Config(bool tied = true) {
  return {.layers = 3, .hidden = 24, .heads = 4, .ffn = 56, .vocab = 29, .max_positions = 12, .tied = tied};
}

TEST(Gpt2, NamesShapesInitAndDecayAreHuggingFaces) {
  std::map<std::string, engine::ParamSpec> specs;
  for (const engine::UnitSpec& unit : Gpt2Units(Config())) {
    for (const engine::ParamSpec& spec : unit.params) specs[spec.name] = spec;
  }
  EXPECT_EQ(specs.size(), 4u + 3u * 12u) << "a tied weight is stored once";
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(specs.at("transformer.wpe.weight").shape, (Shape{12, 24}));
  EXPECT_EQ(specs.at("transformer.h.2.attn.c_attn.weight").shape, (Shape{24, 72})) << "[in, out]";
  EXPECT_EQ(specs.at("transformer.h.0.mlp.c_proj.weight").shape, (Shape{56, 24}));
  EXPECT_NEAR(specs.at("transformer.h.0.mlp.c_proj.weight").init_std, 0.02 / std::sqrt(6.0), 1e-15);
  EXPECT_EQ(specs.at("transformer.h.0.ln_1.weight").init, engine::Init::kOnes);
  EXPECT_EQ(specs.at("transformer.h.0.attn.c_attn.bias").init, engine::Init::kZeros);
  for (const auto& [name, spec] : specs) EXPECT_EQ(spec.decay, spec.shape.size() == 2) << name;
  EXPECT_EQ(Gpt2Units(Config(false))[0].params.back().name, "lm_head.weight");
}

TEST(Gpt2, FreshModelPredictsAlmostUniformlyAndFutureTokensDoNotMatter) {
  PlainHost host(Gpt2Units(Config()), at::kFloat, 5);
  Gpt2 gpt2(Config(), host);
  EXPECT_NEAR(gpt2.LossSum(Tokens(8, 12, 29, 1)).item<double>() / (8 * 12), std::log(29.0), 0.05);
  const at::Tensor a = Tokens(1, 8, 29, 2);
  at::Tensor b = a.clone();
  b[0][6] = (b[0][6] + 1) % 29;
  const at::Tensor la = gpt2.Logits(a), lb = gpt2.Logits(b);
  EXPECT_TRUE(at::allclose(la.narrow(1, 0, 6), lb.narrow(1, 0, 6), 1e-6, 1e-6));
  EXPECT_FALSE(at::allclose(la.narrow(1, 6, 1), lb.narrow(1, 6, 1)));
}

TEST(Gpt2, CheckpointingKeepsTheBitsAlsoOnTheEngine) {
  at::set_num_threads(1);
  const at::Tensor tokens = Tokens(4, 11, 29, 3);
  const auto units = Gpt2Units(Config());
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    Named none;
    for (const Mode mode : {Mode::kNone, Mode::kSelective, Mode::kFull}) {
      PlainHost host(units, type == at::kDouble ? at::kDouble : at::kFloat, 5, type);
      Gpt2 gpt2(Config(), host, mode);
      gpt2.LossSum(tokens).backward();
      const Named grads = Gradients(host);
      if (mode == Mode::kNone) none = grads;
      for (const auto& [name, g] : none) EXPECT_TRUE(at::equal(g, grads.at(name))) << c10::toString(type) << name;
    }
  }
  for (const int stage : {0, 3}) {
    std::map<Mode, Named> full;
    for (const Mode mode : {Mode::kNone, Mode::kSelective, Mode::kFull}) {
      full[mode] = engine::testing::Like(units, at::kFloat);
      RunRanks(2, [&](int rank, device::Device& device, dist::Comm& comm) {
        engine::Engine engine(device, comm, units, {.stage = stage, .seed = 5});
        Gpt2 gpt2(Config(), engine, mode);
        for (int step = 0; step < 2; ++step) {
          engine.BeginStep();
          engine.Backward(gpt2.LossSum(tokens.narrow(0, 2 * rank, 2)), true);
          engine.FinishBackward();
        }
        engine::testing::CollectGradients(engine, full[mode]);
      });
      for (const auto& [name, g] : full[Mode::kNone]) {
        EXPECT_GT(g.abs().max().item<double>(), 0.0) << name;
        EXPECT_TRUE(at::equal(g, full[mode].at(name))) << "stage " << stage << ": " << name;
      }
    }
  }
}

TEST(Gpt2, ImpossibleShapesAndTokensAreRefused) {
  Gpt2Config c = Config();
  c.heads = 5;
  EXPECT_THROW(Gpt2Units(c), std::invalid_argument);
  PlainHost host(Gpt2Units(Config()), at::kFloat, 5);
  Gpt2 gpt2(Config(), host);
  EXPECT_THROW(gpt2.LossSum(Tokens(1, 13, 29, 1)), std::invalid_argument);
  EXPECT_THROW(gpt2.Logits(Tokens(2, 5, 29, 1).to(at::kInt)), std::invalid_argument);
}

}  // namespace
}  // namespace trainyard::model
