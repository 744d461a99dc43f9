#include "trainer/tokenizer/tokenizer.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/tokenizer/model_files.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& path) {
  const auto opened = Tokenizer::Open(path);
  return opened ? "opened" : std::string(ErrorCodeName(opened.error().code)) + ": " + opened.error().message;
}

TEST(Bytes, AreTheirOwnTokens) {
  const auto bytes = Tokenizer::Open("bytes").value();
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_THAT(bytes->Encode("Hi\xff").value(), ElementsAre('H', 'i', 255));  // UTF-8 or not
  EXPECT_EQ(bytes->Decode({'H', 'i', 255}).value(), "Hi\xff");
  EXPECT_FALSE(bytes->Decode({256}).has_value());
  EXPECT_EQ(bytes->hash(), HashOf("bytes").value());
  EXPECT_FALSE(bytes->eos().has_value());
}

TEST(Open, SaysWhatIsWrongWithWhich) {
  ModelFiles files;
  EXPECT_THAT(ErrorOf(files.Path("none")), HasSubstr("NotFound: tokenizer " + files.Path("none") + " does not exist"));
  EXPECT_THAT(ErrorOf(files.directory()),
              HasSubstr("InvalidArgument: " + files.directory() + " holds no tokenizer.json and no tokenizer.model"));
  files.Write("merges.txt", "");
  EXPECT_THAT(ErrorOf(files.directory()), HasSubstr("save_pretrained"));
}

TEST(HashIn, IsThatOfTheFileWhereThereIsOne) {
  ModelFiles files;
  EXPECT_EQ(HashIn(files.directory()).value(), std::nullopt);
  EXPECT_EQ(HashIn(files.Path("none")).value(), std::nullopt);
  const std::string path = files.Write("tokenizer.model", "x");
  EXPECT_EQ(HashIn(files.directory()).value(), HashOf(path).value());
  EXPECT_NE(HashOf(files.Write("other.model", "y")).value(), HashOf(path).value());
}

TEST(HashText, Is16Digits) { EXPECT_EQ(HashText(0xabc), "0000000000000abc"); }

#ifdef TRAINYARD_BUILD_TOKENIZERS
TEST(SentencePiece, RefusesWhatIsNone) {
  ModelFiles files;
  EXPECT_THAT(ErrorOf(files.Write("tokenizer.model", "IQ== 0\nIg== 1\n")),
              HasSubstr("InvalidArgument: " + files.Path("tokenizer.model") + " is no SentencePiece model"));
  EXPECT_THAT(ErrorOf(files.Write("empty.model", "")), HasSubstr("is no SentencePiece model"));
}

TEST(HuggingFace, WordsAndSpecialTokens) {
  ModelFiles files;
  const std::string path = files.Write("tokenizer.json", kWordTokenizer);
  const auto tokenizer = Tokenizer::Open(files.directory()).value();
  EXPECT_EQ(tokenizer->path(), path);
  EXPECT_EQ(tokenizer->vocab(), 41) << "a token behind a gap is below it, too";
  // Truncation and padding of the file are for a model's inputs, not for files of tokens.
  EXPECT_THAT(tokenizer->Encode("one two  three").value(), ElementsAre(8, 9, 10));
  EXPECT_THAT(tokenizer->EncodePrompt("one").value(), ElementsAre(1, 8));
  EXPECT_THAT(tokenizer->Encode("one</s>five").value(), ElementsAre(8, 2, 0));
  EXPECT_THAT(tokenizer->Encode("").value(), ElementsAre());
  EXPECT_EQ(tokenizer->Decode({1, 8, 9, 2}).value(), "one two");
  EXPECT_EQ(tokenizer->Spell({1, 8, 9, 2}).value(), "<s> one two </s>");
  EXPECT_EQ(tokenizer->Find("<|endoftext|>"), 40U);
  EXPECT_EQ(tokenizer->Find("five"), std::nullopt);
  EXPECT_EQ(tokenizer->NameOf(9), "two");
  EXPECT_EQ(tokenizer->NameOf(30), "");
  EXPECT_EQ(tokenizer->hash(), HashOf(path).value());
  EXPECT_EQ(tokenizer->hash(), HashOf(files.directory()).value());

  const TokensWithSpans spans = tokenizer->EncodeWithSpans("<s>\xd0\x96 two").value();
  EXPECT_THAT(spans.ids, ElementsAre(1, 0, 9));
  EXPECT_EQ(spans.spans[1].begin, 3U);  // bytes, not characters
  EXPECT_EQ(spans.spans[1].end, 5U);
  EXPECT_EQ(spans.spans[2].begin, 6U);
}

TEST(HuggingFace, RefusesWhatItCannotDo) {
  ModelFiles files;
  const auto tokenizer = Tokenizer::Open(files.Write("tokenizer.json", kWordTokenizer)).value();
  EXPECT_EQ(tokenizer->Encode("one \xff").error().message, "byte 4 is not UTF-8");
  EXPECT_THAT(tokenizer->Decode({41}).error().message, HasSubstr("token 41 is not below the vocabulary of 41"));
  EXPECT_THAT(ErrorOf(files.Write("broken.json", "{\"model\": ")),
              HasSubstr("InvalidArgument: " + files.Path("broken.json") + " is no tokenizer.json of Hugging Face: "));
  EXPECT_THAT(ErrorOf(files.Write("other.json", R"({"model": {"type": "Unheard"}})")),
              HasSubstr("is no tokenizer.json"));
}

TEST(HuggingFace, ManyThreadsEncodeAtOnce) {
  ModelFiles files;
  const auto tokenizer = Tokenizer::Open(files.Write("tokenizer.json", kWordTokenizer)).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) ASSERT_THAT(tokenizer->Encode("three . one").value(), ElementsAre(10, 12, 8));
    });
  }
  for (std::thread& thread : threads) thread.join();
}
#else
TEST(PublishedModels, AreLeftOut) {
  ModelFiles files;
  for (const std::string path : {files.Write("tokenizer.json", kWordTokenizer), files.Write("x.model", "\n")}) {
    EXPECT_THAT(ErrorOf(path),
                HasSubstr(path + " cannot be used: this program was built with TRAINYARD_BUILD_TOKENIZERS=OFF"));
  }
}
#endif

}  // namespace
}  // namespace trainyard::tokenizer
