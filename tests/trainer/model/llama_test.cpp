// The whole model against a second writing of it in plain autograd, and its names and shapes against Hugging Face's.
#include "trainer/model/llama.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "tests/trainer/engine/harness.h"

namespace trainyard::model {
namespace {

using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RelativeError;
using engine::testing::Tokens;

LlamaConfig Config(bool tied, int64_t kv_heads) {
  LlamaConfig c;
  c.layers = 2, c.hidden = 32, c.heads = 4, c.kv_heads = kv_heads, c.ffn = 20, c.vocab = 23, c.max_positions = 16;
  c.tied = tied, c.rope_theta = 500.0, c.norm_eps = 1e-6;
  return c;
}

at::Tensor Norm(const at::Tensor& x, const at::Tensor& w, double eps) {
  return x * at::rsqrt(x.square().mean(-1, true) + eps) * w;
}

// Follows modeling_llama.py line by line: repeated key and value heads, an explicit mask, softmax.
at::Tensor SecondWriting(const LlamaConfig& c, std::map<std::string, at::Tensor>& p, const at::Tensor& tokens) {
  const int64_t b = tokens.size(0), s = tokens.size(1), d = c.hidden / c.heads;
  const at::Tensor inv = at::pow(c.rope_theta, -at::arange(0, d, 2, at::kDouble) / static_cast<double>(d));
  const at::Tensor angle = at::outer(at::arange(s, at::kDouble), inv);
  const at::Tensor cos = at::cat({angle, angle}, -1).cos(), sin = at::cat({angle, angle}, -1).sin();
  const at::Tensor mask = at::full({s, s}, -INFINITY, at::kDouble).triu(1);
  const auto rope = [&](const at::Tensor& x) {
    return x * cos + at::cat({-x.narrow(-1, d / 2, d / 2), x.narrow(-1, 0, d / 2)}, -1) * sin;
  };
  at::Tensor x = p["model.embed_tokens.weight"].index_select(0, tokens.reshape({-1})).view({b, s, c.hidden});
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string n = "model.layers." + std::to_string(l) + ".";
    const at::Tensor a = Norm(x, p[n + "input_layernorm.weight"], c.norm_eps);
    const auto heads = [&](const char* w, int64_t count) {
      return at::matmul(a, p[n + w].t()).view({b, s, count, d}).transpose(1, 2);
    };
    const at::Tensor q = rope(heads("self_attn.q_proj.weight", c.heads));
    const at::Tensor k = rope(heads("self_attn.k_proj.weight", c.kv_heads)).repeat_interleave(c.heads / c.kv_heads, 1);
    const at::Tensor v = heads("self_attn.v_proj.weight", c.kv_heads).repeat_interleave(c.heads / c.kv_heads, 1);
    const at::Tensor scores =
        at::softmax(at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(d)) + mask, -1);
    const at::Tensor mixed = at::matmul(scores, v).transpose(1, 2).reshape({b, s, c.hidden});
    x = x + at::matmul(mixed, p[n + "self_attn.o_proj.weight"].t());
    const at::Tensor m = Norm(x, p[n + "post_attention_layernorm.weight"], c.norm_eps);
    const at::Tensor gate = at::matmul(m, p[n + "mlp.gate_proj.weight"].t());
    const at::Tensor up = at::matmul(m, p[n + "mlp.up_proj.weight"].t());
    x = x + at::matmul(gate * at::sigmoid(gate) * up, p[n + "mlp.down_proj.weight"].t());
  }
  x = Norm(x, p["model.norm.weight"], c.norm_eps);
  return at::matmul(x, p[c.tied ? "model.embed_tokens.weight" : "lm_head.weight"].t());
}

TEST(Llama, LogitsLossAndGradientsEqualASecondWriting) {
  for (bool tied : {false, true}) {
    for (int64_t kv_heads : {1, 2, 4}) {
      const LlamaConfig config = Config(tied, kv_heads);
      const at::Tensor tokens = Tokens(3, 9, config.vocab, 21);
      PlainHost host(LlamaUnits(config), at::kDouble, 5);
      Llama llama(config, host);
      std::map<std::string, at::Tensor> p;
      host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& t) {
        at::NoGradGuard no_grad;
        t.add_(at::randn(t.sizes(), at::kDouble) * 0.3);  // norms off one, attention off uniform
        p[spec.name] = t.detach().clone().set_requires_grad(true);
      });
      const at::Tensor inputs = tokens.narrow(1, 0, 9), targets = tokens.narrow(1, 1, 9).reshape({-1});
      const at::Tensor ref = SecondWriting(config, p, inputs);
      EXPECT_LT(RelativeError(llama.Logits(inputs), ref), 1e-12);
      const at::Tensor ref_loss = at::cross_entropy_loss(ref.view({-1, config.vocab}), targets, {}, at::Reduction::Sum);
      const at::Tensor loss = llama.LossSum(tokens);
      EXPECT_EQ(loss.scalar_type(), at::kDouble);
      EXPECT_NEAR(loss.item<double>(), ref_loss.item<double>(), 1e-10);
      loss.backward();
      ref_loss.backward();
      host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& t) {
        EXPECT_GT(p[spec.name].grad().abs().max().item<double>(), 0.0) << spec.name;
        EXPECT_LT(RelativeError(t.grad(), p[spec.name].grad()), 1e-11) << spec.name;
      });
    }
  }
}

TEST(Llama, WeightsCountRowsAndZeroRowsLeaveZeroGradients) {
  const LlamaConfig config = Config(true, 2);
  const at::Tensor tokens = Tokens(3, 6, config.vocab, 22);
  PlainHost host(LlamaUnits(config), at::kDouble, 5);
  Llama llama(config, host);
  const double first = llama.LossSum(tokens.narrow(0, 0, 1)).item<double>();
  const double last = llama.LossSum(tokens.narrow(0, 2, 1)).item<double>();
  const at::Tensor weights = at::tensor({1.0, 0.0, 2.0}, at::kDouble);
  EXPECT_NEAR(llama.LossSum(tokens, weights).item<double>(), first + 2 * last, 1e-10);
  const at::Tensor zero = llama.LossSum(tokens, at::zeros({3}));
  EXPECT_EQ(zero.item<double>(), 0.0);
  zero.backward();
  host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& t) {
    EXPECT_EQ(t.grad().abs().max().item<double>(), 0.0) << spec.name;
  });
}

TEST(Llama, FreshModelPredictsAlmostUniformly) {
  const LlamaConfig config = Config(true, 2);
  PlainHost host(LlamaUnits(config), at::kFloat, 5);
  Llama llama(config, host);
  const double loss = llama.LossSum(Tokens(8, 16, config.vocab, 1)).item<double>() / (8 * 16);
  EXPECT_NEAR(loss, std::log(23.0), 0.05);
}

TEST(Llama, FutureTokensDoNotMatter) {
  const LlamaConfig config = Config(true, 2);
  PlainHost host(LlamaUnits(config), at::kDouble, 5);
  Llama llama(config, host);
  const at::Tensor a = Tokens(1, 8, config.vocab, 2);
  at::Tensor b = a.clone();
  b[0][6] = (b[0][6] + 1) % config.vocab;
  const at::Tensor la = llama.Logits(a), lb = llama.Logits(b);
  EXPECT_TRUE(at::allclose(la.narrow(1, 0, 6), lb.narrow(1, 0, 6), 1e-12, 1e-12));
  EXPECT_FALSE(at::allclose(la.narrow(1, 6, 1), lb.narrow(1, 6, 1)));
}

TEST(Llama, NamesShapesAndDecayAreHuggingFaces) {
  std::map<std::string, engine::ParamSpec> specs;
  int64_t count = 0;
  for (const engine::UnitSpec& unit : LlamaUnits(Config(false, 2))) {
    for (const engine::ParamSpec& spec : unit.params) specs[spec.name] = spec, count += spec.numel();
  }
  EXPECT_EQ(specs.size(), 3u + 2u * 9u);
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(specs.at("model.embed_tokens.weight").shape, (Shape{23, 32}));
  EXPECT_EQ(specs.at("lm_head.weight").shape, (Shape{23, 32}));
  EXPECT_EQ(specs.at("model.layers.1.self_attn.k_proj.weight").shape, (Shape{16, 32}));
  EXPECT_EQ(specs.at("model.layers.1.mlp.down_proj.weight").shape, (Shape{32, 20}));
  EXPECT_EQ(specs.at("model.layers.0.input_layernorm.weight").shape, (Shape{32}));
  EXPECT_FALSE(specs.at("model.norm.weight").decay);
  EXPECT_TRUE(specs.at("model.layers.0.mlp.up_proj.weight").decay);
  // h^2 (2 + 2 kv/heads) + 3 h f + 2 h per block, V h twice, h.
  EXPECT_EQ(count, 2 * (32 * 32 * 3 + 3 * 32 * 20 + 2 * 32) + 2 * 23 * 32 + 32);
  EXPECT_EQ(LlamaUnits(Config(true, 2))[0].params.size(), 2u) << "a tied weight is stored once";
}

TEST(Llama, ImpossibleShapesAreRefused) {
  LlamaConfig c = Config(true, 2);
  c.kv_heads = 3;
  EXPECT_THROW(LlamaUnits(c), std::invalid_argument);
  c = Config(true, 2);
  c.heads = 32;  // head size 1
  EXPECT_THROW(LlamaUnits(c), std::invalid_argument);
  c = Config(true, 2);
  PlainHost host(LlamaUnits(c), at::kFloat, 5);
  Llama llama(c, host);
  EXPECT_THROW(llama.LossSum(Tokens(1, 17, c.vocab, 1)), std::invalid_argument);
}

// An angle of thousands of radians has no place in eight bits: with tables made in bfloat16 far positions would turn
// by anything at all.
TEST(Llama, RotaryTablesAreMadeInDoubleWhateverTheComputeType_Bug46) {
  LlamaConfig c = Config(true, 4);
  c.layers = 1, c.max_positions = 4096;
  const auto units = LlamaUnits(c);
  PlainHost exact(units, at::kDouble, 5), coarse(units, at::kDouble, 5, at::kBFloat16);
  at::NoGradGuard no_grad;
  for (PlainHost* host : {&exact, &coarse}) {
    for (size_t i = 0; i < units[1].params.size(); ++i) {
      const std::string& name = units[1].params[i].name;
      // Attention that looks at few places, and is most of the result.
      const double factor = name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos   ? 20
                            : name.find("v_proj") != std::string::npos || name.find("o_proj") != std::string::npos ? 10
                                                                                                                   : 1;
      at::Tensor p = host->Param(1, static_cast<int>(i));
      p.mul_(factor);
    }
  }
  const at::Tensor tokens = Tokens(1, 4095, c.vocab, 7);
  const auto late = [&](PlainHost& host) {
    Llama llama(c, host);
    return llama.Logits(tokens.narrow(1, 0, 4095)).narrow(1, 4000, 95).to(at::kDouble);
  };
  const at::Tensor reference = late(exact);
  EXPECT_LT(((late(coarse) - reference).norm() / reference.norm()).item<double>(), 0.1);
}

TEST(Llama, TokensOutsideTheVocabularyAreNamed) {
  const LlamaConfig config = Config(true, 2);
  PlainHost host(LlamaUnits(config), at::kFloat, 5);
  Llama llama(config, host);
  for (const int64_t bad : {int64_t{23}, int64_t{-1}, int64_t{1} << 40}) {
    for (const int64_t place : {0, 8}) {  // the last one is a target only
      at::Tensor tokens = Tokens(2, 8, 23, 1);
      tokens[1][place] = bad;
      try {
        llama.LossSum(tokens);
        FAIL() << "token " << bad << " was taken";
      } catch (const TokenError& e) {
        EXPECT_NE(std::string(e.what()).find("token " + std::to_string(bad) + " is not in the vocabulary of 23"),
                  std::string::npos)
            << e.what();
      }
    }
  }
  EXPECT_THROW(llama.Logits(at::full({1, 3}, 23, at::kLong)), TokenError);
}

}  // namespace
}  // namespace trainyard::model
