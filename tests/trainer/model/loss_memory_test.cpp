// The loss of a large vocabulary never holds a tensor of [tokens, vocabulary]: bytes of all operations, counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/trainer/engine/harness.h"
#include "trainer/device/device.h"
#include "trainer/model/llama.h"

namespace trainyard::model {
namespace {

using engine::testing::PlainHost;
using engine::testing::Tokens;

constexpr int64_t kVocab = 50000, kRows = 4, kLength = 256, kHidden = 16;
constexpr int64_t kTokens = kRows * kLength;
constexpr int64_t kWhole = 4 * kTokens * kVocab;  // bytes of the logits, were they there at once

LlamaConfig Config(bool tied) {
  LlamaConfig c;
  c.layers = 1, c.hidden = kHidden, c.heads = 2, c.kv_heads = 2, c.ffn = 24, c.vocab = kVocab, c.max_positions = 256;
  c.tied = tied;
  return c;
}

// Most bytes of operations above what was there before.
int64_t Peak(const LlamaConfig& config, bool backward, const at::Tensor& weights) {
  auto device = device::Open("CPU").value();
  PlainHost host(LlamaUnits(config), at::kFloat, 3);
  Llama llama(config, host);
  const at::Tensor tokens = Tokens(kRows, kLength, kVocab, 4);
  const at::AutoGradMode mode(backward);
  llama.LossSum(tokens.narrow(1, 0, 3));  // makes the tables of positions
  device->ResetPeak();
  const int64_t before = device->OperationStats().current_bytes;
  const at::Tensor loss = llama.LossSum(tokens, weights);
  if (backward) loss.backward();
  return device->OperationStats().peak_bytes - before;
}

TEST(LossMemory, NoMoreThanAChunkOfLogitsExists) {
  // Of a chunk there are at most its logits, their log-softmax and its gradient, never all three: two of 4 bytes.
  const int64_t chunk = std::max<int64_t>(64, (1 << 22) / kVocab), chunk_bytes = 2 * 4 * chunk * kVocab;
  const int64_t head = 4 * kVocab * kHidden;
  const int64_t blocks = 4 * kTokens * (24 * kHidden + 6 * 24);  // a generous bound of everything else
  for (const bool tied : {false, true}) {
    const int64_t forward = Peak(Config(tied), false, {});
    EXPECT_LE(forward, chunk_bytes + blocks) << "tied " << tied;
    // The gradient of the head, its part of one chunk, and at the end the embedding's.
    const int64_t all = Peak(Config(tied), true, {});
    EXPECT_LE(all, chunk_bytes + 3 * head + blocks) << "tied " << tied;
    const int64_t weighted = Peak(Config(tied), true, at::rand({kRows, kLength}));
    EXPECT_LE(weighted, chunk_bytes + 3 * head + blocks) << "tied " << tied;
    std::printf(
        "%s head: forward %.1f MiB, with gradients %.1f MiB, with weights %.1f MiB; logits alone are %.1f MiB\n",
        tied ? "tied" : "untied", static_cast<double>(forward) / (1 << 20), static_cast<double>(all) / (1 << 20),
        static_cast<double>(weighted) / (1 << 20), static_cast<double>(kWhole) / (1 << 20));
    EXPECT_LT(chunk_bytes + 3 * head + blocks, kWhole / 2) << "else this test proves nothing";
  }
}

TEST(LossMemory, WeightsPerTargetAreThoseOfTheirTargets) {
  LlamaConfig config = Config(true);
  config.vocab = 31;
  PlainHost host(LlamaUnits(config), at::kDouble, 3);
  Llama llama(config, host);
  const at::Tensor tokens = Tokens(2, 5, 31, 4);
  // A prompt of three targets that do not count, and a whole row that does not.
  at::Tensor weights = at::zeros({2, 5}, at::kDouble);
  weights[0].narrow(0, 3, 2).fill_(1.5);
  const at::Tensor logits = llama.Logits(tokens.narrow(1, 0, 5)).view({10, 31});
  const at::Tensor each =
      at::cross_entropy_loss(logits, tokens.narrow(1, 1, 5).reshape({10}), {}, at::Reduction::None).view({2, 5});
  EXPECT_NEAR(llama.LossSum(tokens, weights).item<double>(), (each * weights).sum().item<double>(), 1e-12);
  // One weight per row is the same for all its targets.
  const at::Tensor rows = at::tensor({2.0, 0.5}, at::kDouble);
  EXPECT_NEAR(llama.LossSum(tokens, rows).item<double>(), (each * rows.unsqueeze(1)).sum().item<double>(), 1e-12);
  EXPECT_THROW(llama.LossSum(tokens, at::ones({2, 4})), std::invalid_argument);
  EXPECT_THROW(llama.LossSum(tokens, at::ones({3})), std::invalid_argument);
}

// A target that does not count says nothing, whatever it is: gradients as if it were not there.
TEST(LossMemory, ATargetOfWeightZeroHasNoGradient) {
  LlamaConfig config = Config(false);
  config.vocab = 31;
  const at::Tensor tokens = Tokens(1, 6, 31, 9);
  at::Tensor other = tokens.clone();
  other[0][6] = (other[0][6] + 7) % 31;
  const at::Tensor weights = at::tensor({1.0, 1.0, 1.0, 1.0, 1.0, 0.0}).view({1, 6});
  engine::testing::Named grads[2];
  for (int i = 0; i < 2; ++i) {
    PlainHost host(LlamaUnits(config), at::kFloat, 3);
    Llama llama(config, host);
    llama.LossSum(i == 0 ? tokens : other, weights).backward();
    grads[i] = engine::testing::Gradients(host);
  }
  for (const auto& [name, g] : grads[0]) EXPECT_TRUE(at::equal(g, grads[1].at(name))) << name;
}

}  // namespace
}  // namespace trainyard::model
