#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The fields that matter of the config.json published with each model on Hugging Face, and the parameter count that its
// safetensors index or model page gives.
json Llama2_7b() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "tie_word_embeddings": false, "vocab_size": 32000})");
}

TEST(ConfigJson, Llama) {
  auto shape = ShapeFromConfigJson(Llama2_7b());
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 6'738'415'616);
  EXPECT_EQ(shape->max_positions, 4096);
  EXPECT_TRUE(shape->assumption.empty());
}

TEST(ConfigJson, LlamaTiedWithHeadDim) {  // Llama-3.2-1B
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "tie_word_embeddings": true,
    "vocab_size": 128256})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 1'235'814'400);
}

TEST(ConfigJson, Mistral) {  // Mistral-7B-v0.1
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["MistralForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 32000})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 7'241'732'096);
}

TEST(ConfigJson, MistralWithItsOwnHeadDim) {  // Mistral-Nemo-Base-2407: 32 heads of 128 at width 5120
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["MistralForCausalLM"], "head_dim": 128,
    "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 131072})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 12'247'782'400);
}

TEST(ConfigJson, Qwen2HasBiasesInAttention) {  // Qwen2-7B
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 152064})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 7'615'616'512);
}

TEST(ConfigJson, Gpt2IsTiedAndHasLearnedPositions) {
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 124'439'808);
  EXPECT_EQ(BlockParameters(*shape), 12 * 768 * 768 + 13 * 768);
}

TEST(ConfigJson, ModelTypeIsEnoughWhereArchitecturesIsMissing) {
  json config = Llama2_7b();
  config.erase("architectures");
  EXPECT_TRUE(ShapeFromConfigJson(config));
}

std::string ErrorOf(const json& config) {
  auto shape = ShapeFromConfigJson(config);
  return shape ? "accepted" : shape.error().message;
}

TEST(ConfigJson, UnknownArchitecturesAreNamedWithTheKnownOnes) {
  json config = Llama2_7b();
  config["architectures"] = {"T5ForConditionalGeneration"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("architecture T5ForConditionalGeneration is not known here; known are Llama"));
  EXPECT_THAT(ErrorOf(json::object()), HasSubstr("names no architecture"));
  EXPECT_THAT(ErrorOf(json::array()), HasSubstr("not a JSON object"));
}

TEST(ConfigJson, BadFieldsAreNamed) {
  json config = Llama2_7b();
  config.erase("hidden_size");
  EXPECT_EQ(ErrorOf(config), "config.json: hidden_size is missing");
  config = Llama2_7b();
  config["num_hidden_layers"] = "many";
  EXPECT_THAT(ErrorOf(config), HasSubstr("num_hidden_layers is \"many\", not a whole number"));
  config = Llama2_7b();
  config["vocab_size"] = -1;
  EXPECT_THAT(ErrorOf(config), HasSubstr("vocab_size is -1"));
  config = Llama2_7b();
  config["hidden_size"] = 1e18;
  EXPECT_THAT(ErrorOf(config), HasSubstr("hidden_size"));
  config = Llama2_7b();
  config["num_key_value_heads"] = 5;
  EXPECT_THAT(ErrorOf(config), HasSubstr("num_key_value_heads 5 does not divide num_attention_heads 32"));
  config = Llama2_7b();
  config["tie_word_embeddings"] = "no";
  EXPECT_THAT(ErrorOf(config), HasSubstr("tie_word_embeddings is \"no\", not true or false"));
}

}  // namespace
}  // namespace trainyard::sizing
