// Documents in packed rows: each is computed as it would be alone, in both families and under every checkpointing mode.
#include "trainer/model/documents.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/trainer/engine/harness.h"
#include "trainer/model/family.h"

namespace trainyard::model {
namespace {

using engine::testing::Gradients;
using engine::testing::Named;
using engine::testing::PlainHost;

constexpr int64_t kEnd = 0;  // the separator

LlamaConfig SmallLlama() {
  LlamaConfig c;
  c.layers = 2, c.hidden = 32, c.heads = 4, c.kv_heads = 2, c.ffn = 48, c.vocab = 19, c.max_positions = 16,
  c.tied = true;
  return c;
}

Gpt2Config SmallGpt2() {
  Gpt2Config c;
  c.layers = 2, c.hidden = 32, c.heads = 4, c.ffn = 48, c.vocab = 19, c.max_positions = 16, c.tied = true;
  return c;
}

at::Tensor Longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Two rows of nine inputs: documents of 4, 1 and 4 tokens, and of 3 and 6.
at::Tensor Rows() {
  return Longs({5, 6, 7, kEnd, kEnd, 8, 9, 10, 11, 3, 4, kEnd, 12, 13, 14, 15, 16, kEnd}).view({2, 9});
}

TEST(FindDocuments, EndWithTheirSeparatorOrTheRow) {
  const Documents found = FindDocuments(Rows(), kEnd);
  EXPECT_EQ(found.lengths, (std::vector<int64_t>{4, 1, 4, 3, 6}));
  EXPECT_TRUE(at::equal(found.positions, Longs({0, 1, 2, 3, 0, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4, 5}).view({2, 9})));
  // A separator at the end of a row begins nothing in it.
  EXPECT_TRUE(FindDocuments(Longs({1, 2, kEnd}).view({1, 3}), kEnd).lengths.empty());
  EXPECT_FALSE(FindDocuments(Longs({1, 2, 3}).view({1, 3}), kEnd).positions.defined());
}

class PackedModel : public testing::TestWithParam<bool> {
 protected:
  Config Shape() const { return GetParam() ? Config(SmallGpt2()) : Config(SmallLlama()); }
};

TEST_P(PackedModel, EachDocumentHasTheLogitsThatItHasAlone) {
  at::NoGradGuard no_grad;
  // Both types: FP32 on a CPU has kernels of its own.
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 1e-5)}) {
    PlainHost host(Units(Shape()), type, 3);
    const auto model = Make(Shape(), host);
    const at::Tensor crossing = model->Logits(Rows());
    model->SeparateDocuments(kEnd);
    const at::Tensor packed = model->Logits(Rows()).view({18, -1});
    int64_t begin = 0;
    for (const int64_t length : {4, 1, 4, 3, 6}) {
      const at::Tensor alone = model->Logits(Rows().view(-1).narrow(0, begin, length).unsqueeze(0))[0];
      EXPECT_LT((packed.narrow(0, begin, length) - alone).abs().max().item<double>(), tolerance)
          << c10::toString(type) << ", token " << begin;
      begin += length;
    }
    EXPECT_GT((packed - crossing.view({18, -1})).abs().max().item<double>(), 10 * tolerance) << "it makes a difference";
  }
}

TEST_P(PackedModel, CheckpointingModesHaveTheSameBits) {
  at::set_num_threads(1);
  const at::Tensor tokens = at::cat({Rows(), Rows().narrow(1, 0, 1)}, 1);
  Named none;
  double loss = 0;
  for (const auto mode :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    PlainHost host(Units(Shape()), at::kFloat, 3);
    const auto model = Make(Shape(), host, mode);
    model->SeparateDocuments(kEnd);
    const at::Tensor sum = model->LossSum(tokens);
    sum.backward();
    const Named gradients = Gradients(host);
    if (mode == ActivationCheckpointing::kNone) {
      none = gradients;
      loss = sum.item<double>();
      continue;
    }
    EXPECT_EQ(sum.item<double>(), loss);
    for (const auto& [name, gradient] : none) EXPECT_TRUE(at::equal(gradient, gradients.at(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackedModel, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Gpt2" : "Llama"; });

}  // namespace
}  // namespace trainyard::model
