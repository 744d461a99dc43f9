#include "trainer/data/token_writer.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/data/temp_files.h"
#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

size_t Entries(const TempFiles& files) {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(files.Path(""))) ++n;
  return n;
}

TokenHeader Header(int64_t vocab, bool bits) {
  TokenHeader header;
  header.vocab = vocab;
  header.tokenizer = 0x1234;
  header.separator = 1;
  header.target_bits = bits;
  return header;
}

// Any number of tokens in pieces of any size comes back, token by token and bit by bit.
TEST(TokenWriter, WhatIsWrittenIsRead) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const int64_t vocab : {300, 1 << 16, 200'000}) {
    for (const size_t total : {1, 7, 8, 9, 1000, 700'001}) {
      TempFiles files;
      std::vector<uint32_t> ids(total);
      std::vector<uint8_t> counts(total);
      for (size_t i = 0; i < total; ++i) {
        ids[i] = static_cast<uint32_t>(random() % static_cast<uint32_t>(vocab));
        counts[i] = random() % 3 == 0;
      }
      auto writer = TokenWriter::Create(files.Path("out"), Header(vocab, true)).value();
      for (size_t at = 0; at < total;) {
        const size_t n = std::min<size_t>(total - at, random() % 100'000 + 1);
        ASSERT_TRUE(writer.Append(ids.data() + at, n, counts.data() + at));
        at += n;
      }
      writer.EndDocument();
      EXPECT_FALSE(std::filesystem::exists(files.Path("out")));
      ASSERT_TRUE(writer.Finish());
      EXPECT_EQ(Entries(files), 1U);

      const auto source = TokenSource::Open(Format::kTokens, {files.Path("out")}, vocab).value();
      ASSERT_EQ(source->tokens(), static_cast<int64_t>(total));
      EXPECT_EQ(source->origin().tokenizer, 0x1234U);
      std::vector<int64_t> read(total);
      std::vector<uint8_t> bits(total);
      ASSERT_TRUE(source->Copy(0, source->tokens(), read.data()));
      ASSERT_TRUE(source->CopyTargetBits(0, source->tokens(), bits.data()));
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), read.begin()));
      EXPECT_EQ(bits, counts);
      EXPECT_EQ(writer.counted(), std::count(counts.begin(), counts.end(), 1));
    }
  }
}

TEST(TokenWriter, WhatIsNotFinishedLeavesNothing) {
  TempFiles files;
  files.Write("out", "what was there");
  {
    auto writer = TokenWriter::Create(files.Path("out"), Header(300, true)).value();
    const std::vector<uint32_t> ids(3 << 20, 7);
    ASSERT_TRUE(writer.Append(ids.data(), ids.size()));
  }
  EXPECT_EQ(Entries(files), 1U);
  EXPECT_EQ(std::filesystem::file_size(files.Path("out")), 14U);
}

TEST(TokenWriter, AFullDiskIsOneErrorAndNoFile) {
  TempFiles files;
  // A limit on the size of files is met by the same path as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{1 << 20, old.rlim_max};
  Status status;
  {
    auto writer = TokenWriter::Create(files.Path("out"), Header(300, true)).value();
    setrlimit(RLIMIT_FSIZE, &small);
    const std::vector<uint32_t> ids(3 << 20, 7);
    status = writer.Append(ids.data(), ids.size());
  }
  setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message, HasSubstr("cannot write " + files.Path("out") + ": File too large"));
  EXPECT_EQ(Entries(files), 0U);
}

TEST(TokenWriter, NamesWhereItCannotWrite) {
  TempFiles files;
  const auto error = [&](const std::string& path) { return TokenWriter::Create(path, Header(300, false)).error(); };
  EXPECT_EQ(error(files.Path("none/out")).code, ErrorCode::kNotFound);
  EXPECT_THAT(error(files.Path("none/out")).message, HasSubstr(files.Path("none/out")));
  EXPECT_THAT(error(files.Path("")).message, HasSubstr("Is a directory"));
  const std::string pipe = files.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error(pipe).message,
            "cannot write " + pipe + ": it is a device or a pipe, and a token file would take its place");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::remove(pipe);
  auto writer = TokenWriter::Create(files.Path("out"), Header(300, false)).value();
  const uint32_t large = 300;
  EXPECT_EQ(writer.Append(&large, 1).error().code, ErrorCode::kInternal);
}

// Targets that a file says not to learn, and those behind a separator, have no weight; a source without bits counts
// all.
TEST(BatchReader, BitsOfTheFileAreWeightsOfTargets) {
  TempFiles files;
  const auto write = [&](const std::string& name, bool bits, const std::vector<uint32_t>& ids,
                         const std::vector<uint8_t>& counts) {
    auto writer = TokenWriter::Create(files.Path(name), Header(300, bits)).value();
    EXPECT_TRUE(writer.Append(ids.data(), ids.size(), bits ? counts.data() : nullptr));
    EXPECT_TRUE(writer.Finish());
    return TokenSource::Open(Format::kTokens, {files.Path(name)}, 300).value();
  };
  const auto chat = write("chat", true, {5, 6, 7, 1, 8, 9, 10, 11, 12}, {0, 0, 1, 1, 1, 0, 0, 1, 0});
  const auto text = write("text", false, {20, 21, 1, 23, 24}, {});
  ReadOptions options{4, Order::kSequential, 0, std::nullopt};
  const auto weights = [](const Batch& batch) {
    const at::Tensor flat = batch.weights.contiguous().view(-1);
    return std::vector<float>(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  };
  Batch batch = BatchReader::Make(*chat, options).value().Load(0, 2).value();
  EXPECT_THAT(weights(batch), ElementsAre(0, 1, 1, 1, 0, 0, 1, 0));
  EXPECT_EQ(batch.targets, 4);

  options.separator = 1;
  batch = BatchReader::Make(*chat, options).value().Load(0, 2).value();
  EXPECT_THAT(weights(batch), ElementsAre(0, 1, 1, 0, 0, 0, 1, 0));  // 8 follows the separator
  EXPECT_EQ(batch.targets, 3);

  const auto both =
      BatchReader::Make({chat.get(), text.get()}, Mixture::Make({1, 1}).value(), options).value().Load(0, 2).value();
  EXPECT_THAT(weights(both), ElementsAre(0, 1, 1, 0, 1, 1, 0, 1));
  EXPECT_EQ(both.targets, 5);

  options.separator = 2;
  EXPECT_EQ(BatchReader::Make(*chat, options).error().message,
            "documents of " + files.Path("chat") + " end with token 1, data.documentSeparator says 2");
}

}  // namespace
}  // namespace trainyard::data
