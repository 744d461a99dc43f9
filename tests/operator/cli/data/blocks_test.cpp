#include "operator/cli/data/blocks.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/tokenizer/model_files.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;
using tokenizer::ModelFiles;

std::vector<Block> ReadAll(const std::vector<std::string>& paths, BlockReader::Cut cut) {
  BlockReader reader(paths, cut);
  std::vector<Block> blocks;
  for (;;) {
    Result<std::optional<Block>> block = reader.Next();
    EXPECT_TRUE(block) << block.error().message;
    if (!block || !*block) return blocks;
    blocks.push_back(std::move(**block));
  }
}

std::string Joined(const std::vector<Block>& blocks) {
  std::string text;
  for (const Block& block : blocks) text += block.text;
  return text;
}

// Nothing is lost or doubled, blocks of lines end with one, and each says where it begins.
TEST(BlockReader, BlocksAreTheFileCutBetweenLinesOrWords) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr size_t kBlock = BlockReader::kBlockBytes;
  for (const size_t bytes : {size_t{1}, kBlock - 1, kBlock, kBlock + 1, 5 * kBlock + 77}) {
    ModelFiles files;
    std::string text;
    while (text.size() < bytes) text += random() % 50 == 0 ? '\n' : random() % 5 == 0 ? ' ' : 'x';
    const std::string path = files.Write("text", text);
    for (const auto cut : {BlockReader::Cut::kLines, BlockReader::Cut::kBeforeSpace}) {
      const std::vector<Block> blocks = ReadAll({path}, cut);
      EXPECT_EQ(Joined(blocks), text);
      int64_t line = 1;
      for (size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(blocks[i].line, line);
        EXPECT_EQ(blocks[i].begins, i == 0);
        EXPECT_EQ(blocks[i].ends, i + 1 == blocks.size());
        EXPECT_LE(blocks[i].text.size(), kBlock);
        line += std::count(blocks[i].text.begin(), blocks[i].text.end(), '\n');
        if (i == 0) continue;
        if (cut == BlockReader::Cut::kLines) {
          EXPECT_EQ(blocks[i - 1].text.back(), '\n');
        } else {
          EXPECT_EQ(blocks[i - 1].text.back(), 'x');
          EXPECT_EQ(blocks[i].text.substr(0, 2), " x");
        }
      }
    }
  }
}

TEST(BlockReader, TheSpaceAtACutIsLeftOutWhereATokenizerPutsOne) {
  ModelFiles files;
  std::string text;
  while (text.size() < (3 << 20)) text += "\xd1\x81\xd0\xbb\xd0\xbe\xd0\xb2\xd0\xbe \xd0\xb8 ";
  const std::vector<Block> blocks = ReadAll({files.Write("words", text)}, BlockReader::Cut::kOverSpace);
  ASSERT_GE(blocks.size(), 3U);
  std::string joined = blocks[0].text;
  for (size_t i = 1; i < blocks.size(); ++i) joined += " " + blocks[i].text;
  EXPECT_EQ(joined, text);
}

// Without words between lines, and not behind white space, which belongs together; without lines between characters.
TEST(BlockReader, TextWithoutWordsIsCutBetweenLinesElseCharacters) {
  ModelFiles files;
  std::string lines, letters;
  while (lines.size() < (3 << 20)) lines += "1,2;\n\n3\r\n4\n5";
  while (letters.size() < (20 << 20)) letters += "\xe3\x81\x82";
  const std::vector<Block> by_line = ReadAll({files.Write("lines", lines)}, BlockReader::Cut::kBeforeSpace);
  EXPECT_EQ(Joined(by_line), lines);
  ASSERT_GT(by_line.size(), 1U);
  for (size_t i = 1; i < by_line.size(); ++i) EXPECT_EQ(by_line[i].text.front(), '5');
  const std::vector<Block> by_letter = ReadAll({files.Write("letters", letters)}, BlockReader::Cut::kBeforeSpace);
  EXPECT_EQ(Joined(by_letter), letters);
  ASSERT_GT(by_letter.size(), 1U);
  for (const Block& block : by_letter) EXPECT_EQ(block.text.size() % 3, 0U);
}

TEST(BlockReader, FilesComeInTheirOrder) {
  ModelFiles files;
  const auto blocks = ReadAll({files.Write("a", "one\n"), files.Write("b", "two")}, BlockReader::Cut::kLines);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[1].file, 1U);
  EXPECT_EQ(blocks[1].text, "two");
  EXPECT_EQ(blocks[1].line, 1);
}

TEST(BlockReader, NamesTheFileThatCannotBeRead) {
  ModelFiles files;
  const auto error = [](const std::string& path) {
    BlockReader reader({path}, BlockReader::Cut::kLines);
    return reader.Next().error().message;
  };
  EXPECT_EQ(error(files.Path("none")), "cannot read " + files.Path("none") + ": No such file or directory");
  EXPECT_THAT(error(files.directory()), HasSubstr("Is a directory"));
  EXPECT_EQ(error(files.Write("empty", "")), "input " + files.Path("empty") + " is empty");
  EXPECT_EQ(BlockReader::TotalBytes({files.Write("five", "12345"), files.Path("empty")}).value(), 5);
  EXPECT_EQ(BlockReader::TotalBytes({files.Path("none")}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace trainyard::cli
