#include "trainer/generate/text_stream.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/tokenizer/model_files.h"
#include "trainer/generate/prompt.h"
#include "trainer/tokenizer/utf8.h"

namespace trainyard::generate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tokenizer::Tokenizer;

std::unique_ptr<Tokenizer> Bytes() { return std::move(*Tokenizer::Open("bytes")); }

std::vector<std::string> Pieces(const Tokenizer& tokenizer, const std::vector<uint32_t>& context,
                                const std::vector<uint32_t>& ids) {
  TextStream stream(tokenizer, context);
  std::vector<std::string> pieces;
  for (const uint32_t id : ids) pieces.push_back(stream.Push(id).value());
  pieces.push_back(stream.End().value());
  return pieces;
}

std::string Joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextStream, GivesCharactersOutWhole) {
  const auto bytes = Bytes();
  // e with acute, euro sign, grinning face.
  EXPECT_THAT(Pieces(*bytes, {'x'}, {0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 'a'}),
              ElementsAre("", "\xc3\xa9", "", "", "\xe2\x82\xac", "", "", "", "\xf0\x9f\x98\x80", "a", ""));
}

TEST(TextStream, WhatIsNoCharacterIsReplaced) {
  const auto bytes = Bytes();
  const std::string replaced = "\xef\xbf\xbd";
  EXPECT_THAT(Pieces(*bytes, {}, {0xff, 'a', 0xc3, 'b', 0xe2, 0x82}),
              ElementsAre(replaced, "a", "", replaced + "b", "", "", replaced + replaced));
}

TEST(TextStream, ATokenWithoutTextIsReplaced) {
  const auto bytes = Bytes();
  EXPECT_THAT(Pieces(*bytes, {}, {'a', 256, 0xc3, 400, 'b'}),
              ElementsAre("a", "\xef\xbf\xbd", "", "\xef\xbf\xbd\xef\xbf\xbd", "b", ""));
}

TEST(TextStream, EveryPieceOfAnyBytesIsUtf8) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto bytes = Bytes();
  for (int round = 0; round < 50; ++round) {
    std::vector<uint32_t> ids(40);
    for (uint32_t& id : ids) id = random() % 256;
    for (const std::string& piece : Pieces(*bytes, {}, ids)) {
      EXPECT_EQ(tokenizer::ValidUtf8Prefix(piece), piece.size());
    }
  }
  const std::string text = "na\xc3\xafve \xe2\x82\xac \xd1\x81\xd0\xbb\xd0\xbe\xd0\xb2\xd0\xbe \xf0\x9f\x98\x80!";
  EXPECT_EQ(Joined(Pieces(*bytes, {'y'}, *bytes->Encode(text))), text);
}

TEST(PromptTokens, AreThoseOfTheText) {
  const auto bytes = Bytes();
  EXPECT_THAT(*PromptTokens({"ab", false, "", ""}, *bytes), ElementsAre('a', 'b'));
  EXPECT_THAT(PromptTokens({"", false, "", ""}, *bytes).error().message, HasSubstr("the prompt is empty"));
  EXPECT_THAT(PromptTokens({"a", true, "", ""}, *bytes).error().message,
              HasSubstr("the prompt: nothing beside bytes has a chat template; say --template"));
}

#ifdef TRAINYARD_BUILD_TOKENIZERS

std::string Utf8Of(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// A byte-level BPE without merges: each byte is a token, spelled with GPT-2's letters for bytes.
std::string ByteLevel() {
  std::string vocab;
  for (int i = 0, next = 0; i < 256; ++i) {
    const bool plain = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
    const int code = plain ? i : 256 + next++;
    const std::string escape = code == '"' || code == '\\' ? "\\" : "";
    vocab += (i == 0 ? "\"" : ", \"") + escape + Utf8Of(code) + "\": " + std::to_string(i);
  }
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {)" +
         vocab + R"(}, "merges": []}})";
}

TEST(TextStream, HoldsBackWhatALibraryWritesAsAReplacement) {
  tokenizer::ModelFiles files;
  const auto opened = Tokenizer::Open(files.Write("tokenizer.json", ByteLevel()));
  ASSERT_TRUE(opened) << opened.error().message;
  const std::string text = "a \xe2\x82\xac\xf0\x9f\x98\x80";
  const auto ids = (*opened)->Encode(text);
  ASSERT_EQ(ids->size(), text.size());
  EXPECT_THAT(Pieces(**opened, *(*opened)->Encode("q"), *ids),
              ElementsAre("a", " ", "", "", "\xe2\x82\xac", "", "", "", "\xf0\x9f\x98\x80", ""));
  // Half of a character at the end.
  const std::vector<std::string> cut = Pieces(**opened, {}, {ids->begin(), ids->end() - 1});
  EXPECT_EQ(Joined(cut), "a \xe2\x82\xac\xef\xbf\xbd");
}

// A decoder that puts spaces between words, and none before the first one.
TEST(TextStream, TheContextDecidesOnASpace) {
  tokenizer::ModelFiles files;
  const auto opened = Tokenizer::Open(files.Write("tokenizer.json", tokenizer::kWordTokenizer));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_THAT(Pieces(**opened, {8}, {9, 10}), ElementsAre(" two", " three", ""));
  EXPECT_THAT(Pieces(**opened, {}, {9, 2, 10}), ElementsAre("two", "", " three", ""));
}

TEST(PromptTokens, OfAChatAreTheTemplateUpToTheAnswer) {
  tokenizer::ModelFiles files;
  files.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto opened = Tokenizer::Open(files.Write("tokenizer.json", tokenizer::kWordTokenizer));
  ASSERT_TRUE(opened) << opened.error().message;
  // With the token before it that the file's post-processor puts there.
  EXPECT_THAT(*PromptTokens({"one", false, "", ""}, **opened), ElementsAre(1, 8));
  EXPECT_THAT(*PromptTokens({"one", true, "chatml", "two"}, **opened), ElementsAre(3, 7, 9, 4, 3, 5, 8, 4, 3, 6));
  EXPECT_THAT(*PromptTokens({"", false, "", ""}, **opened), ElementsAre(1));
}

#endif

}  // namespace
}  // namespace trainyard::generate
