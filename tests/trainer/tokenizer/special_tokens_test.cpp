#include "trainer/tokenizer/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/tokenizer/model_files.h"

namespace trainyard::tokenizer {
namespace {

using ::testing::HasSubstr;

TEST(SpecialTokens, NoFilesSayNothing) {
  ModelFiles files;
  const SpecialTokens special = ReadSpecialTokens(files.directory()).value();
  EXPECT_EQ(special.bos + special.eos + special.chat_template, "");
  EXPECT_TRUE(special.add_bos);
}

TEST(SpecialTokens, BothFormsOfATokenAndOfATemplate) {
  ModelFiles files;
  files.Write("special_tokens_map.json", R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>"})");
  files.Write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<|end|>", "add_bos_token": false,
    "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  SpecialTokens special = ReadSpecialTokens(files.directory()).value();
  EXPECT_EQ(special.bos, "<s>");
  EXPECT_EQ(special.eos, "<|end|>");
  EXPECT_FALSE(special.add_bos);
  EXPECT_EQ(special.chat_template, "D");
  EXPECT_EQ(special.chat_template_file, files.Path("tokenizer_config.json"));

  files.Write("chat_template.jinja", "J");
  EXPECT_EQ(ReadSpecialTokens(files.directory()).value().chat_template, "J");
}

TEST(SpecialTokens, WhatHasAnotherShapeIsNamed) {
  ModelFiles files;
  const auto error = [&](const std::string& text) {
    files.Write("tokenizer_config.json", text);
    return ReadSpecialTokens(files.directory()).error().message;
  };
  const std::string path = files.Path("tokenizer_config.json");
  EXPECT_EQ(error("{"), path + " is not a JSON object");
  EXPECT_EQ(error("[]"), path + " is not a JSON object");
  EXPECT_EQ(error(R"({"eos_token": 2})"), path + ": eos_token is not the name of a token");
  EXPECT_EQ(error(R"({"chat_template": 2})"), path + ": chat_template is not a text");
}

}  // namespace
}  // namespace trainyard::tokenizer
