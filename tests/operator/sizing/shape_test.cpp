#include "operator/sizing/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

using ::testing::HasSubstr;

int64_t ParametersOf(const std::string& name) {
  for (const ModelShape& m : ReferenceShapes()) {
    if (m.name == name) return m.parameters;
  }
  return 0;
}

// Counts as published with the weights (the safetensors index or the model page on Hugging Face).
TEST(Shape, ReferenceShapesHaveThePublishedParameterCounts) {
  EXPECT_EQ(ParametersOf("TinyLlama 1.1B"), 1'100'048'384);
  EXPECT_EQ(ParametersOf("Llama 3.2 3B"), 3'212'749'824);
  EXPECT_EQ(ParametersOf("Llama 2 7B"), 6'738'415'616);
  EXPECT_EQ(ParametersOf("Llama 3.1 8B"), 8'030'261'248);
  EXPECT_EQ(ParametersOf("Llama 2 13B"), 13'015'864'320);
  EXPECT_EQ(ParametersOf("Code Llama 34B"), 33'743'970'304);
  EXPECT_EQ(ParametersOf("Llama 3 70B"), 70'553'706'496);
}

TEST(Shape, TensorsAddUpToTheCountAndTiedHeadsAreNotListedTwice) {
  for (const ModelShape& m : ReferenceShapes()) {
    const auto tensors = Tensors(m);
    const int64_t sum = std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                                        [](int64_t n, const TensorCount& t) { return n + t.Elements(); });
    EXPECT_EQ(sum, CountParameters(m)) << m.name;
    EXPECT_EQ(RootParameters(m) + m.layers * BlockParameters(m), sum) << m.name;
    EXPECT_EQ(tensors.back().name == "lm_head.weight", !m.tied) << m.name;
  }
}

TEST(Shape, BlockParametersFollowTheFormula) {
  for (const ModelShape& m : ReferenceShapes()) {
    // h^2 (2 + 2 kv/heads) + 3 h f + 2 h
    const int64_t h = m.hidden;
    EXPECT_EQ(BlockParameters(m), 2 * h * h + 2 * h * h / m.heads * m.kv_heads + 3 * h * m.ffn + 2 * h) << m.name;
  }
}

TEST(Shape, BareNumbersMapToTheListedModelsAtTheStatedCount) {
  const std::pair<int64_t, const char*> cases[] = {
      {1'000'000'000, "TinyLlama 1.1B"}, {3'000'000'000, "Llama 3.2 3B"}, {7'000'000'000, "Llama 2 7B"},
      {8'000'000'000, "Llama 3.1 8B"},   {13'000'000'000, "Llama 2 13B"}, {34'000'000'000, "Code Llama 34B"},
      {70'000'000'000, "Llama 3 70B"},   {6'738'415'616, "Llama 2 7B"}};
  for (const auto& [count, name] : cases) {
    auto shape = ShapeFromCount(count);
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_EQ(shape->name, name);
    EXPECT_EQ(shape->parameters, count);
    EXPECT_THAT(shape->assumption, HasSubstr(name));
  }
}

TEST(Shape, OtherNumbersAreInterpolatedNearTheStatedCount) {
  for (int64_t count : {int64_t{10'000'000}, int64_t{125'000'000}, int64_t{350'000'000}, int64_t{2'000'000'000},
                        int64_t{20'000'000'000}, int64_t{50'000'000'000}, int64_t{175'000'000'000},
                        int64_t{405'000'000'000}, int64_t{1'100'000'000'000}}) {
    auto shape = ShapeFromCount(count);
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_EQ(shape->parameters, count);
    EXPECT_EQ(shape->hidden % shape->heads, 0) << count;
    EXPECT_EQ(shape->heads % shape->kv_heads, 0) << count;
    EXPECT_THAT(shape->assumption, HasSubstr("interpolated"));
    const double ratio = static_cast<double>(CountParameters(*shape)) / static_cast<double>(count);
    EXPECT_NEAR(ratio, 1, 0.08) << count << ": " << shape->assumption;
  }
}

TEST(Shape, TooSmallAndTooLargeNumbersAreRefused) {
  EXPECT_FALSE(ShapeFromCount(0));
  EXPECT_FALSE(ShapeFromCount(-7));
  EXPECT_FALSE(ShapeFromCount(999));
  EXPECT_TRUE(ShapeFromCount(1'000));
  EXPECT_TRUE(ShapeFromCount(100'000'000'000'000));
  auto large = ShapeFromCount(100'000'000'000'001);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("between 1K and 100T"));
}

api::Architecture Small() {
  api::Architecture a;
  a.layers = 6;
  a.hidden_size = 192;
  a.attention_heads = 6;
  a.kv_heads = 2;
  a.vocab_size = 256;
  return a;
}

TEST(Shape, ArchitectureTakesTheDefaultsOfTheApi) {
  api::Architecture a = Small();
  a.kv_heads = 0;
  auto shape = ShapeFromArchitecture(a);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->kv_heads, 6);
  EXPECT_EQ(shape->ffn, 512);  // 8/3 of 192
  // Per block 4 h^2 + 3 h f + 2 h; embedding, norm, head.
  const int64_t expected = 6 * (4 * 192 * 192 + 3 * 192 * 512 + 2 * 192) + 2 * 256 * 192 + 192;
  EXPECT_EQ(shape->parameters, expected);
  a.tied_embeddings = true;
  EXPECT_EQ(ShapeFromArchitecture(a)->parameters, expected - 256 * 192);
}

TEST(Shape, WrongArchitecturesNameTheField) {
  auto error = [](api::Architecture a) {
    auto shape = ShapeFromArchitecture(a);
    return shape ? std::string("accepted") : shape.error().message;
  };
  api::Architecture a = Small();
  a.layers = 0;
  EXPECT_THAT(error(a), HasSubstr("spec.model.architecture.layers: 0 is not between 1 and"));
  a = Small();
  a.hidden_size = 200;
  EXPECT_THAT(error(a), HasSubstr("hiddenSize: 200 is not a multiple of attentionHeads 6"));
  a = Small();
  a.kv_heads = 4;
  EXPECT_THAT(error(a), HasSubstr("kvHeads: 4 does not divide attentionHeads 6"));
  a = Small();
  a.ffn_size = int64_t{1} << 62;
  EXPECT_THAT(error(a), HasSubstr("ffnSize"));
  a = Small();
  a.vocab_size = -1;
  EXPECT_THAT(error(a), HasSubstr("vocabSize"));
  a = Small();
  a.layers = 10'000;
  a.hidden_size = 960'000;
  a.ffn_size = 10'000'000;
  EXPECT_THAT(error(a), HasSubstr("spec.model.architecture: its tensors would hold "));
}

TEST(Shape, AJobNeedsANumberOrAnArchitecture) {
  api::TrainingJob job;
  auto none = ShapeOf(job);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("spec.model"));
  job.spec.model.parameters = "7B";
  EXPECT_EQ(ShapeOf(job)->parameters, 7'000'000'000);
  job.spec.model.parameters = "7 billion";
  EXPECT_THAT(ShapeOf(job).error().message, HasSubstr("spec.model.parameters"));
  job.spec.model.architecture = Small();
  job.spec.model.architecture->vocab_size = 0;  // text: bytes
  EXPECT_EQ(ShapeOf(job)->vocab, 256);
}

}  // namespace
}  // namespace trainyard::sizing
