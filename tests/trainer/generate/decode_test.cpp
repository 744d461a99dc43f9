// Tokens out of models as others published them, against those of transformers.
#include "trainer/generate/decode.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/generate/published_model.h"
#include "tests/trainer/tokenizer/model_files.h"
#include "trainer/generate/sampler.h"
#include "trainer/generate/source.h"
#include "trainer/model/family.h"

namespace trainyard::generate {
namespace {

using model::Golden;
using model::ReadGolden;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPrompt = 4, kPositions = 12;

// A model from a directory, and texts of it.
class Made {
 public:
  Made(const std::string& directory, const std::string& precision) {
    Request request;
    request.model = directory;
    request.precision = precision;
    Result<Source> source = OpenSource(request);
    if (!source) throw std::runtime_error(source.error().message);
    auto weights = LoadWeights(*source, TypeOf(request, *source));
    if (!weights) throw std::runtime_error(weights.error().message);
    weights_ = std::move(*weights);
    model_ = model::Make(model::ConfigOf(source->model), *weights_);
  }

  Result<Decoded> Go(const std::vector<uint32_t>& prompt, const DecodeOptions& options,
                     const SamplingOptions& sampling = {}) {
    Sampler sampler(sampling);
    return Decode(
        *model_, at::kCPU, prompt, options,
        [&](const at::Tensor& logits, int64_t position) {
          return sampler.Draw({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}, position);
        },
        [](int64_t) { return Status(); });
  }

 private:
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<model::Model> model_;
};

std::vector<uint32_t> PromptOf(const Golden& golden, int64_t row) {
  const at::Tensor& tokens = golden.tensors.at("tokens");
  std::vector<uint32_t> prompt;
  for (int64_t i = 0; i < kPrompt; ++i) prompt.push_back(static_cast<uint32_t>(tokens[row][i].item<int64_t>()));
  return prompt;
}

nlohmann::json Greedy() {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/models/greedy.json");
  return nlohmann::json::parse(in);
}

TEST(Decode, GreedyTokensAreThoseOfTransformers) {
  at::set_num_threads(1);
  const nlohmann::json greedy = Greedy();
  for (const char* name : model::kGoldenModels) {
    SCOPED_TRACE(name);
    tokenizer::ModelFiles files;
    const Golden golden = ReadGolden(name);
    WritePublished(golden, files.directory());
    Made made(files.directory(), "");
    for (int64_t row = 0; row < 3; ++row) {
      const auto decoded = made.Go(PromptOf(golden, row), {kPositions - kPrompt, kPositions, {}});
      ASSERT_TRUE(decoded) << decoded.error().message;
      EXPECT_EQ(decoded->tokens, greedy.at(name).at(row).get<std::vector<int64_t>>()) << row;
      EXPECT_EQ(decoded->stop, Stop::kTokens);
    }
  }
}

class DecodeLlama : public testing::Test {
 protected:
  DecodeLlama() : golden_(ReadGolden("llama_tied")) {
    at::set_num_threads(1);
    WritePublished(golden_, files_.directory());
    made_.emplace(files_.directory(), "FP32");
    expected_ = Greedy().at("llama_tied").at(0).get<std::vector<int64_t>>();  // 1, 9, 1, 15, 20, 20, 1, 9
  }

  Golden golden_;
  tokenizer::ModelFiles files_;
  std::optional<Made> made_;
  std::vector<int64_t> expected_;
};

TEST_F(DecodeLlama, EndsWithTheTokenThatEndsATextAndWithoutIt) {
  const auto decoded = made_->Go(PromptOf(golden_, 0), {8, kPositions, {30, 15}});
  EXPECT_THAT(decoded->tokens, ElementsAre(1, 9, 1));
  EXPECT_EQ(decoded->stop, Stop::kEnd);
  const auto at_once = made_->Go(PromptOf(golden_, 0), {8, kPositions, {1}});
  EXPECT_TRUE(at_once->tokens.empty());
}

// The last token need not be seen again: a ninth one comes out of 12 positions.
TEST_F(DecodeLlama, EndsWithTheLastPosition) {
  const auto decoded = made_->Go(PromptOf(golden_, 0), {100, kPositions, {}});
  ASSERT_EQ(decoded->tokens.size(), 9U);
  EXPECT_EQ(std::vector<int64_t>(decoded->tokens.begin(), decoded->tokens.end() - 1), expected_);
  EXPECT_EQ(decoded->stop, Stop::kPositions);
  const auto full = made_->Go(std::vector<uint32_t>(12, 3), {100, kPositions, {}});
  EXPECT_EQ(full->tokens.size(), 1U);
  const auto over = made_->Go(std::vector<uint32_t>(13, 3), {100, kPositions, {}});
  EXPECT_THAT(over.error().message, HasSubstr("the prompt has 13 tokens, the model 12 positions"));
}

TEST_F(DecodeLlama, DrawnTokensAreThoseOfTheSeed) {
  const auto draw = [&](uint64_t seed) {
    return made_->Go(PromptOf(golden_, 0), {8, kPositions, {}}, {.temperature = 5, .seed = seed})->tokens;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

// The weights of 64ths are exact in BF16; sums are not, so tokens may part ways later.
TEST_F(DecodeLlama, Bf16BeginsAlike) {
  Made made(files_.directory(), "BF16");
  EXPECT_EQ(made.Go(PromptOf(golden_, 0), {1, kPositions, {}})->tokens[0], expected_[0]);
}

}  // namespace
}  // namespace trainyard::generate
