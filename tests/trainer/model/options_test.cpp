// The options of the decoder: windows against a dense mask, and everything at once under activation checkpointing, on
// the engine and with packed documents. Values of the options against transformers: golden_test.cpp.
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tests/trainer/engine/harness.h"
#include "trainer/model/selective.h"

namespace trainyard::model {
namespace {

using engine::Engine;
using engine::testing::Gradients;
using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RelativeError;
using engine::testing::RunRanks;
using engine::testing::Tokens;
using Mode = ActivationCheckpointing;

constexpr uint64_t kSeed = 11;
constexpr Mode kModes[] = {Mode::kNone, Mode::kSelective, Mode::kFull};

// Softmax over an explicit mask. q: [b, s, heads, d], k, v: [b, s, kv heads, d] -> [b*s, heads*d].
at::Tensor DenseWindow(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  const int64_t s = q.size(1);
  const auto heads = [&](const at::Tensor& x) { return x.repeat_interleave(q.size(2) / x.size(2), 2).transpose(1, 2); };
  const at::Tensor seen = at::ones({s, s}, at::kBool).tril(0).triu(1 - window);
  const at::Tensor scores = (at::matmul(heads(q), heads(k).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3))))
                                .masked_fill(seen.logical_not(), -INFINITY);
  return at::matmul(at::softmax(scores, -1), heads(v)).transpose(1, 2).reshape({q.size(0) * s, q.size(2) * q.size(3)});
}

TEST(Window, StretchesGiveWhatADenseMaskGives) {
  at::manual_seed(3);
  // Within one stretch, over several of the least length, of the window's own length, and one that is never full.
  for (const auto& [s, window] :
       std::vector<std::pair<int64_t, int64_t>>{{9, 1}, {9, 3}, {300, 50}, {401, 130}, {8, 9}}) {
    const int64_t length = s;
    const auto leaf = [length](int64_t heads) {
      return at::randn({2, length, heads, 6}, at::kDouble).set_requires_grad(true);
    };
    const std::vector<at::Tensor> in = {leaf(4), leaf(2), leaf(2)};
    const at::Tensor y = CausalAttention(in[0], in[1], in[2], {}, window);
    const at::Tensor wanted = DenseWindow(in[0], in[1], in[2], window);
    EXPECT_LT(RelativeError(y, wanted), 1e-12) << s << ", window " << window;
    const at::Tensor grad = at::randn(y.sizes(), at::kDouble);
    const auto found = torch::autograd::grad({y}, in, {grad}), expected = torch::autograd::grad({wanted}, in, {grad});
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-12)
          << s << ", " << i;  // zeros in a window of 1
    }
  }
}

// Everything that a relative of Llama can have.
LlamaConfig Config() {
  LlamaConfig c;
  c.layers = 3, c.hidden = 48, c.heads = 6, c.kv_heads = 2, c.ffn = 40, c.vocab = 29, c.max_positions = 16;
  c.head_dim = 10;
  c.qkv_bias = c.output_bias = c.qk_norm = true;
  c.window = 5, c.windowed_layers = {0, 2};
  c.rope = {.type = checkpoint::RopeType::kYarn, .factor = 4, .original_max_positions = 8, .attention_factor = 1.2};
  return c;
}

// Biases and norms off their initial values, so that they matter.
void Stir(PlainHost& host) {
  at::manual_seed(7);
  host.ForEach([](const engine::ParamSpec&, at::Tensor& p) {
    at::NoGradGuard no_grad;
    p.add_(at::randn(p.sizes(), at::kDouble).to(p.scalar_type()) * 0.2);
  });
}

void ExpectSameBits(const Named& a, const Named& b, const std::string& what) {
  for (const auto& [name, g] : a) {
    ASSERT_GT(g.abs().max().item<double>(), 0.0) << name;
    EXPECT_TRUE(at::equal(g, b.at(name))) << what << ": " << name;
  }
}

TEST(Options, ActivationCheckpointingKeepsTheBits) {
  at::set_num_threads(1);
  const LlamaConfig config = Config();
  const at::Tensor tokens = Tokens(3, 13, config.vocab, 4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const bool packed : {false, true}) {
      std::map<Mode, Named> gradients;
      std::map<Mode, double> loss;
      for (const Mode mode : kModes) {
        PlainHost host(LlamaUnits(config), type == at::kBFloat16 ? at::kFloat : type, kSeed, type);
        Stir(host);
        Llama llama(config, host, mode);
        if (packed) llama.SeparateDocuments(3);
        const at::Tensor sum = llama.LossSum(tokens);
        loss[mode] = sum.item<double>();
        sum.backward();
        gradients[mode] = Gradients(host);
      }
      for (const Mode mode : {Mode::kSelective, Mode::kFull}) {
        EXPECT_EQ(loss[mode], loss[Mode::kNone]);
        ExpectSameBits(gradients[Mode::kNone], gradients[mode],
                       std::string(c10::toString(type)) + (packed ? " packed" : "") + " mode " +
                           std::to_string(static_cast<int>(mode)));
      }
    }
  }
}

TEST(Options, DocumentsInARowAreAsEachAlone) {
  const LlamaConfig config = Config();
  PlainHost host(LlamaUnits(config), at::kDouble, kSeed);
  Stir(host);
  Llama llama(config, host);
  at::NoGradGuard no_grad;
  at::Tensor row = Tokens(1, 14, config.vocab - 1, 4).narrow(1, 0, 14) + 1;  // no zeros but the ones that separate
  row[0][7] = 0;
  const at::Tensor first = llama.Logits(row.narrow(1, 0, 8)), second = llama.Logits(row.narrow(1, 8, 6));
  llama.SeparateDocuments(0);
  EXPECT_LT(RelativeError(llama.Logits(row), at::cat({first, second}, 1)), 1e-12);
}

TEST(Options, EveryStageAndWorldSizeGivesThePlainGradients) {
  const LlamaConfig config = Config();
  const auto units = LlamaUnits(config);
  const at::Tensor tokens = Tokens(6, 13, config.vocab, 4);
  PlainHost host(units, at::kFloat, kSeed);
  Llama(config, host).LossSum(tokens).backward();
  const Named plain = Gradients(host);
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 2, 3}) {
      for (const Mode mode : kModes) {
        Named found = engine::testing::Like(units, at::kFloat);
        RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
          Engine engine(device, comm, units, {.stage = stage, .seed = kSeed});
          Llama llama(config, engine, mode);
          engine.BeginStep();
          const int64_t each = 6 / world;
          engine.Backward(llama.LossSum(tokens.narrow(0, rank * each, each)), true);
          engine.FinishBackward();
          engine::testing::CollectGradients(engine, found);
        });
        for (const auto& [name, g] : plain) {
          EXPECT_LT(RelativeError(found.at(name), g), 1e-5) << name << ", stage " << stage << ", " << world << " ranks";
        }
      }
    }
  }
}

TEST(Options, AWindowThatHoldsTheRowIsNone) {
  LlamaConfig config = Config();
  PlainHost host(LlamaUnits(config), at::kFloat, kSeed);
  at::NoGradGuard no_grad;
  const at::Tensor tokens = Tokens(2, 13, config.vocab, 4);
  config.window = 13;
  const at::Tensor wide = Llama(config, host).Logits(tokens.narrow(1, 0, 13));
  config.windowed_layers.clear();
  EXPECT_TRUE(at::equal(wide, Llama(config, host).Logits(tokens.narrow(1, 0, 13))));
  config.windowed_layers = {1};
  config.window = 12;
  EXPECT_FALSE(at::equal(wide, Llama(config, host).Logits(tokens.narrow(1, 0, 13))));
}

TEST(Options, ImpossibleOnesAreRefused) {
  for (const auto& spoil : std::vector<void (*)(LlamaConfig&)>{
           [](LlamaConfig& c) { c.head_dim = 9; }, [](LlamaConfig& c) { c.head_dim = -2; },
           [](LlamaConfig& c) { c.window = -1; }, [](LlamaConfig& c) { c.windowed_layers = {3}; },
           [](LlamaConfig& c) { c.head_dim = 0, c.hidden = 47; }}) {
    LlamaConfig config = Config();
    spoil(config);
    EXPECT_THROW(LlamaUnits(config), std::invalid_argument);
  }
}

}  // namespace
}  // namespace trainyard::model
