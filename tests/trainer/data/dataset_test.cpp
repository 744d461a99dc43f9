#include "trainer/data/dataset.h"

#include <sys/stat.h>

#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/data/temp_files.h"
#include "trainer/data/token_file.h"

namespace trainyard::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> Read(const TokenSource& source, int64_t pos, int64_t n) {
  std::vector<int64_t> tokens(static_cast<size_t>(n), -1);
  EXPECT_TRUE(source.Copy(pos, n, tokens.data()).has_value());
  return tokens;
}

TEST(TokenSource, TextIsItsBytes) {
  TempFiles files;
  auto source = TokenSource::Open(Format::kText, {files.Write("a", "Hi\xff")}, 256).value();
  EXPECT_EQ(source->tokens(), 3);
  EXPECT_THAT(Read(*source, 0, 3), ElementsAre('H', 'i', 255));
}

TEST(TokenSource, FilesFollowEachOther) {
  TempFiles files;
  auto source =
      TokenSource::Open(Format::kText, {files.Write("a", "abc"), files.Write("b", "d"), files.Write("c", "efg")}, 256)
          .value();
  EXPECT_EQ(source->tokens(), 7);
  EXPECT_THAT(Read(*source, 1, 5), ElementsAre('b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(Read(*source, 3, 1), ElementsAre('d'));
  EXPECT_THAT(Read(*source, 6, 1), ElementsAre('g'));
  EXPECT_THAT(Read(*source, 7, 0), ElementsAre());
  int64_t out[8];
  EXPECT_FALSE(source->Copy(3, 5, out).has_value());
  EXPECT_FALSE(source->Copy(-1, 1, out).has_value());
}

TEST(TokenSource, TokenFilesOfBothWidths) {
  TempFiles files;
  const std::string narrow = EncodeTokenFile({1, 65535, 7}, 65536).value();
  const std::string wide = EncodeTokenFile({70000, 2}, 100000).value();
  EXPECT_EQ(narrow.size(), 64U + 6U);
  EXPECT_EQ(wide.size(), 64U + 8U);
  auto source = TokenSource::Open(Format::kTokens, {files.Write("n", narrow), files.Write("w", wide)}, 100000).value();
  EXPECT_THAT(Read(*source, 0, 5), ElementsAre(1, 65535, 7, 70000, 2));
}

std::string ErrorOf(Format format, const std::vector<std::string>& paths, int64_t vocab) {
  auto source = TokenSource::Open(format, paths, vocab);
  return source ? "opened" : std::string(ErrorCodeName(source.error().code)) + ": " + source.error().message;
}

TEST(TokenSource, NamesTheFileThatIsWrong) {
  TempFiles files;
  const std::string good = EncodeTokenFile({1, 2, 3}, 10).value();
  EXPECT_THAT(ErrorOf(Format::kText, {files.Path("none")}, 256),
              HasSubstr("NotFound: data file " + files.Path("none")));
  EXPECT_THAT(ErrorOf(Format::kText, {files.Write("empty", "")}, 256), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(Format::kText, {files.Path("")}, 256), HasSubstr("directory"));
  ASSERT_EQ(mkfifo(files.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(Format::kText, {files.Path("pipe")}, 256), HasSubstr("pipe is not a regular file"));
  EXPECT_THAT(ErrorOf(Format::kText, {"/dev/zero"}, 256), HasSubstr("/dev/zero is not a regular file"));
  EXPECT_THAT(ErrorOf(Format::kText, {files.Write("t", "x")}, 100), HasSubstr("vocabulary of 256"));
  EXPECT_THAT(ErrorOf(Format::kText, {}, 256), HasSubstr("no data files"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("text", "plain text that is longer than a header")}, 256),
              HasSubstr("InvalidArgument: data file " + files.Path("text") + " is not a token file"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("short", good.substr(0, 20))}, 256), HasSubstr("not a token file"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("cut", good.substr(0, 68))}, 256),
              HasSubstr("DataLoss: data file " + files.Path("cut") + " holds 4 bytes"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("head", good.substr(0, 40))}, 256),
              HasSubstr("DataLoss: data file " + files.Path("head") + " ends inside of its header"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("long", good + "xx")}, 256), HasSubstr("DataLoss"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("vocab", good)}, 9), HasSubstr("raise model.vocabSize"));
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("none2", EncodeTokenFile({}, 9).value())}, 9),
              HasSubstr("no tokens"));
  std::string version = good;
  version[8] = 3;
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("v3", version)}, 256), HasSubstr("version 3"));
  std::string flags = good;
  flags[40] = 4;
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("flags", flags)}, 256), HasSubstr("flags 4"));
  std::string separator = good;
  separator[44] = 11;
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("separator", separator)}, 256),
              HasSubstr("token 10 ends its documents, which is not below its vocabulary of 10"));
  std::string width = good;
  width[12] = 3;
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("w3", width)}, 256), HasSubstr("3 bytes per token"));
  // A count whose product with the width wraps around to the size of the body.
  std::string huge = good;
  huge[23] = static_cast<char>(0x80);
  EXPECT_THAT(ErrorOf(Format::kTokens, {files.Write("huge", huge)}, 256), HasSubstr("DataLoss"));
}

// As they were written before headers told of tokenizers.
TEST(TokenSource, FilesOfVersion1AreStillRead) {
  TempFiles files;
  std::string bytes = EncodeTokenFile({5, 6, 7}, 10).value();
  bytes[8] = 1;
  bytes.erase(32, 32);
  auto source = TokenSource::Open(Format::kTokens, {files.Write("v1", bytes)}, 10).value();
  EXPECT_THAT(Read(*source, 0, 3), ElementsAre(5, 6, 7));
  EXPECT_FALSE(source->has_target_bits());
  EXPECT_EQ(source->origin().tokenizer, 0U);
  EXPECT_FALSE(source->origin().separator.has_value());
}

std::string FileOf(uint64_t tokenizer, std::optional<int64_t> separator) {
  TokenHeader header;
  header.tokens = 2;
  header.vocab = 10;
  header.tokenizer = tokenizer;
  header.separator = separator;
  return EncodeTokenHeader(header) + std::string("\1\0\1\0", 4);
}

TEST(TokenSource, FilesOfOneSourceAreOfOneTokenizer) {
  TempFiles files;
  const std::string a = files.Write("a", FileOf(0xabc, 3)), same = files.Write("same", FileOf(0xabc, 3));
  const std::string other = files.Write("other", FileOf(0xdef, 3)), end = files.Write("end", FileOf(0xabc, 4));
  const std::string unknown = files.Write("unknown", FileOf(0, std::nullopt));
  const auto source = TokenSource::Open(Format::kTokens, {unknown, a, same}, 10).value();
  EXPECT_EQ(source->origin().tokenizer, 0xabcU);
  EXPECT_EQ(source->origin().separator, 3);
  EXPECT_EQ(ErrorOf(Format::kTokens, {a, unknown, other}, 10),
            "InvalidArgument: data file " + other + " was made with another tokenizer (0000000000000def) than " + a +
                " (0000000000000abc); make both with the same one");
  EXPECT_EQ(ErrorOf(Format::kTokens, {a, end}, 10), "InvalidArgument: documents of " + end +
                                                        " end with token 4, those of " + a +
                                                        " with 3; make both with the same separator");
}

TEST(TokenSource, ATokenBeyondTheVocabularyIsFoundWhenRead) {
  TempFiles files;
  std::string bytes = EncodeTokenFile({1, 2, 3, 4}, 10).value();
  bytes[64 + 2 * 2] = 11;
  auto source = TokenSource::Open(Format::kTokens, {files.Write("bad", bytes)}, 256).value();  // more than the file's
  int64_t out[4];
  EXPECT_TRUE(source->Copy(0, 2, out).has_value());
  Status status = source->Copy(1, 3, out);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(status.error().message, HasSubstr("token 2 (byte 68) is 11"));
}

TEST(TokenSource, FingerprintFollowsTheContentOnly) {
  TempFiles files;
  const auto print = [&](const std::vector<std::string>& paths) {
    return TokenSource::Open(Format::kText, paths, 256).value()->fingerprint();
  };
  std::string large(10 << 20, 'x');
  for (size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<char>(i * 2654435761U >> 13);
  }
  const std::string a = files.Write("a", large);
  EXPECT_EQ(print({a}).size(), 16U);
  EXPECT_EQ(print({a}), print({files.Write("elsewhere", large)}));
  EXPECT_NE(print({a}), print({files.Write("longer", large + "y")}));
  std::string first = large;
  first.front() ^= 1;
  EXPECT_NE(print({a}), print({files.Write("first", first)}));
  std::string last = large;
  last.back() ^= 1;
  EXPECT_NE(print({a}), print({files.Write("last", last)}));
  const std::string b = files.Write("b", "small");
  EXPECT_NE(print({a, b}), print({b, a}));
  EXPECT_NE(print({files.Write("ab", "ab"), files.Write("c", "c")}),
            print({files.Write("a1", "a"), files.Write("bc", "bc")}));
}

TEST(TokenFile, RefusesTokensBeyondItsVocabulary) {
  EXPECT_FALSE(EncodeTokenFile({10}, 10).has_value());
  EXPECT_FALSE(EncodeTokenFile({-1}, 10).has_value());
}

}  // namespace
}  // namespace trainyard::data
