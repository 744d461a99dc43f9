#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;
using ::testing::Eq;
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

TEST(ConfigJson, Gpt2IsTiedAndHasLearnedPositions) {
  auto shape = ShapeFromConfigJson(json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257})"));
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->parameters, 124'439'808);
  EXPECT_EQ(BlockParameters(*shape), 12 * 768 * 768 + 13 * 768);
  EXPECT_FALSE(shape->gated);
}

json SmallMoe() {
  return json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "head_dim": 16, "hidden_size": 64,
    "intermediate_size": 96, "moe_intermediate_size": 32, "num_attention_heads": 4, "num_experts": 8,
    "num_experts_per_tok": 2, "num_hidden_layers": 6, "num_key_value_heads": 2, "vocab_size": 100,
    "tie_word_embeddings": false})");
}

TEST(ConfigJson, SomeLayersOfAMixtureMayBeDense) {
  json config = SmallMoe();
  config["decoder_sparse_step"] = 2;   // layers 1, 3 and 5 have experts
  config["mlp_only_layers"] = {0, 3};  // layer 3 not
  auto shape = ShapeFromConfigJson(config);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->dense_layers, 4);
  EXPECT_EQ(shape->SparseLayers(), 2);
  const int64_t attention = 64 * 64 * 2 + 2 * 64 * 32 + 2 * 64 + 2 * 16;
  const int64_t expert = 3 * 64 * 32;
  EXPECT_EQ(shape->parameters, 2 * 100 * 64 + 64 + 6 * attention + 4 * 3 * 64 * 96 + 2 * (8 * 64 + 8 * expert));
  EXPECT_EQ(ActiveParameters(*shape), shape->parameters - 2 * 6 * expert);
  EXPECT_EQ(BlockParameters(*shape), attention + 8 * 64 + 8 * expert) << "the larger kind of block";
  EXPECT_EQ(shape->TokenFfn(), 96) << "the wider of 96 and 2 x 32";
  config["mlp_only_layers"] = {0, 1, 2, 3, 4, 5};
  shape = ShapeFromConfigJson(config);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->SparseLayers(), 0);
  EXPECT_EQ(ActiveParameters(*shape), shape->parameters);
}

TEST(ConfigJson, WhatATokenPassesInAMixture) {
  auto shape = ShapeFromConfigJson(SmallMoe());
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->TokenFfn(), 64);
  EXPECT_EQ(shape->AttentionWidth(), 64);
  EXPECT_EQ(shape->KvWidth(), 32);
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
  EXPECT_THAT(ErrorOf(config), Eq("config.json: the 5 key-value heads do not divide the 32 attention heads"));
  config["num_key_value_heads"] = 64;
  EXPECT_THAT(ErrorOf(config), HasSubstr("the 64 key-value heads do not divide the 32 attention heads"));
  config = Llama2_7b();
  config["hidden_size"] = 4100;
  EXPECT_THAT(ErrorOf(config), HasSubstr("the hidden size 4100 is not a multiple of the 32 attention heads"));
  config["head_dim"] = 128;  // says how wide a head is: the width need not be a multiple
  EXPECT_EQ(ErrorOf(config), "accepted");
  config = Llama2_7b();
  config["num_key_value_heads"] = 0;
  EXPECT_THAT(ErrorOf(config), HasSubstr("num_key_value_heads is 0, not a whole number from 1 to"));
  config = Llama2_7b();
  config["vocab_size"] = 18446744073709551615u;
  EXPECT_THAT(ErrorOf(config), HasSubstr("vocab_size is 18446744073709551615, not a whole number"));
  config = Llama2_7b();
  config["tie_word_embeddings"] = "no";
  EXPECT_THAT(ErrorOf(config), HasSubstr("tie_word_embeddings is \"no\", not true or false"));
}

TEST(ConfigJson, MixturesThatCannotBeAreRefused) {
  json config = SmallMoe();
  config["num_experts_per_tok"] = 9;
  EXPECT_THAT(ErrorOf(config), HasSubstr("a token cannot be sent to 9 of 8 experts"));
  config = SmallMoe();
  config.erase("moe_intermediate_size");
  EXPECT_EQ(ErrorOf(config), "config.json: moe_intermediate_size is missing");
  config = SmallMoe();
  config["mlp_only_layers"] = {0, -1};
  EXPECT_THAT(ErrorOf(config), HasSubstr("mlp_only_layers holds -1, not a whole number from 0 to"));
  config = SmallMoe();
  config["mlp_only_layers"] = 3;
  EXPECT_THAT(ErrorOf(config), HasSubstr("mlp_only_layers is 3, not a list"));
}

TEST(ConfigJson, MoreThanAnyModelIsRefusedWithoutOverflow) {
  json config = Llama2_7b();
  config["hidden_size"] = 1'000'000;
  config["head_dim"] = 1024;
  config["num_attention_heads"] = 10'000;
  config["num_key_value_heads"] = 10'000;
  config["intermediate_size"] = 10'000'000;
  config["num_hidden_layers"] = 10'000;
  EXPECT_THAT(ErrorOf(config), HasSubstr("T parameters; at most 100T can be planned"));
  config["architectures"] = {"Qwen2MoeForCausalLM"};
  config["num_experts"] = 100'000;
  config["num_experts_per_tok"] = 100'000;
  config["moe_intermediate_size"] = 10'000'000;
  config["shared_expert_intermediate_size"] = 10'000'000;
  EXPECT_THAT(ErrorOf(config), HasSubstr("T parameters; at most 100T can be planned"));
}

TEST(ConfigJson, KeysThatNobodyKnowsAreToldAndHarmlessOnesAreNot) {
  json config = Llama2_7b();
  config["torch_dtype"] = "bfloat16";
  config["attention_dropout"] = 0.1;
  config["eos_token_id"] = {128001, 128008};
  config["pruned_heads"] = json::object();  // says nothing
  config["use_mystery"] = false;
  auto shape = ShapeFromConfigJson(config);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->assumption, "");
  config["extra_towers"] = 3;
  shape = ShapeFromConfigJson(config);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->assumption, "config.json also has extra_towers, taken as not changing the number of parameters");
  for (int i = 0; i < 9; ++i) config["key" + std::to_string(i)] = i;
  EXPECT_EQ(ShapeFromConfigJson(config)->assumption,
            "config.json also has extra_towers, key0, key1, key2, key3 and 5 more, taken as not changing the number of "
            "parameters");
  config = json::parse(R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
    "vocab_size": 50257, "add_cross_attention": true})");
  EXPECT_THAT(ErrorOf(config), HasSubstr("a model with an encoder is not known here"));
}

}  // namespace
}  // namespace trainyard::sizing
