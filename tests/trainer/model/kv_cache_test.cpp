// Token by token with a cache is the same as all tokens at once.
#include "trainer/model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/trainer/model/golden.h"

namespace trainyard::model {
namespace {

using engine::testing::PlainHost;
using engine::testing::RelativeError;
using engine::testing::Tokens;

class CachedModel : public testing::TestWithParam<const char*> {};

// Attention adds up in another order where there is one query: a few units of the last place.
constexpr double kTolerance = 3e-6;

// Of the golden models: grouped queries, windows of 3 and 4 in 12 positions, every kind of positions, both families.
TEST_P(CachedModel, GivesTheLogitsOfAllTokensAtOnce) {
  at::set_num_threads(1);
  const Golden golden = ReadGolden(GetParam());
  const Config config = ConfigFrom(golden.config);
  PlainHost host(Units(config), at::kFloat, 1);
  golden.GiveTo(host);
  const auto model = Make(config, host);
  const at::Tensor tokens = Tokens(2, 11, 31, 7);  // two rows of all 12 positions
  at::NoGradGuard no_grad;
  const at::Tensor logits = model->Logits(tokens);
  double worst = 0;
  // What comes at once: the first one alone, more than a window, behind a cache, all.
  for (const std::vector<int64_t>& stretches : std::vector<std::vector<int64_t>>{
           {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 1, 1, 1, 1, 1, 1}, {2, 6, 1, 3}, {12}}) {
    KeyValueCache cache(12);
    for (const int64_t s : stretches) {
      const at::Tensor next = model->NextLogits(tokens.narrow(1, cache.length(), s), cache);
      ASSERT_EQ(next.sizes(), (std::vector<int64_t>{2, 31}));
      const double error = RelativeError(next, logits.select(1, cache.length() - 1));
      EXPECT_LT(error, kTolerance) << cache.length() << " tokens, the last " << s << " at once";
      worst = std::max(worst, error);
    }
    EXPECT_EQ(cache.length(), 12);
    EXPECT_THROW(model->NextLogits(tokens.narrow(1, 0, 1), cache), std::invalid_argument);
  }
  std::printf("%s: largest normwise difference of logits %.1e\n", GetParam(), worst);
}

INSTANTIATE_TEST_SUITE_P(Models, CachedModel, testing::ValuesIn(kGoldenModels),
                         [](const auto& info) { return std::string(info.param); });

LlamaConfig Grouped() {
  LlamaConfig c;
  c.layers = 2, c.hidden = 16, c.heads = 4, c.kv_heads = 2, c.ffn = 24, c.vocab = 31, c.max_positions = 64;
  return c;
}

TEST(KeyValueCache, TakesRoomOnceAndForSharedHeadsOnce) {
  PlainHost host(Units(Grouped()), at::kFloat, 1);
  const auto model = Make(Grouped(), host);
  KeyValueCache cache(40);
  EXPECT_EQ(cache.bytes(), 0);
  for (const int64_t s : {5, 1, 9}) {
    model->NextLogits(Tokens(3, s - 1, 31, 1), cache);
    // Keys and values of 2 layers, 3 rows, 2 heads, 40 tokens, 4 numbers each.
    EXPECT_EQ(cache.bytes(), 2 * 2 * 3 * 2 * 40 * 4 * 4);
  }
}

TEST(KeyValueCache, RefusesWhatDoesNotFit) {
  PlainHost host(Units(Grouped()), at::kFloat, 1);
  const auto model = Make(Grouped(), host);
  KeyValueCache cache(4);
  EXPECT_THROW(model->NextLogits(Tokens(1, 4, 31, 1), cache), std::invalid_argument);
  EXPECT_EQ(cache.length(), 0);
  model->NextLogits(Tokens(1, 2, 31, 1), cache);
  EXPECT_THROW(model->NextLogits(Tokens(2, 0, 31, 1), cache), std::invalid_argument);  // another number of rows
  EXPECT_THROW(model->NextLogits(at::full({1, 1}, 31, at::kLong), cache), TokenError);
  KeyValueCache longer(100);
  EXPECT_THROW(model->NextLogits(Tokens(1, 64, 31, 1), longer), std::invalid_argument);  // 65 of 64 positions
}

// BF16 has 8 bits: what differs are single roundings on the way.
TEST(KeyValueCache, GivesTheSameInBf16WithinItsRounding) {
  at::set_num_threads(1);
  PlainHost host(Units(Grouped()), at::kFloat, 5, at::kBFloat16);
  const auto model = Make(Grouped(), host);
  const at::Tensor tokens = Tokens(1, 31, 31, 9);
  at::NoGradGuard no_grad;
  const at::Tensor logits = model->Logits(tokens);
  KeyValueCache cache(32);
  for (int64_t t = 0; t < 32; ++t) {
    const at::Tensor next = model->NextLogits(tokens.narrow(1, t, 1), cache);
    EXPECT_EQ(next.scalar_type(), at::kBFloat16);
    EXPECT_LT(RelativeError(next, logits.select(1, t)), 0.02) << t;
  }
}

}  // namespace
}  // namespace trainyard::model
