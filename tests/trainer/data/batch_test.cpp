#include "trainer/data/batch.h"

#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/trainer/data/temp_files.h"
#include "trainer/data/sampler.h"

namespace trainyard::data {
namespace {

TEST(PlanStep, EverySequenceOnceAtEveryWorldSize_Bug5_60) {
  for (int64_t global : {1, 2, 3, 7, 8, 12, 33}) {
    for (int64_t micro = 1; micro <= global; ++micro) {
      for (int world = 1; world <= global; ++world) {
        std::vector<int> seen(static_cast<size_t>(global), 0);
        const size_t length = PlanStep(global, micro, world, 0).size();
        for (int rank = 0; rank < world; ++rank) {
          const auto plan = PlanStep(global, micro, world, rank);
          ASSERT_EQ(plan.size(), length) << "ranks would make different collectives";
          for (const MicroBatchPlan& part : plan) {
            ASSERT_GE(part.rows, 1);
            if (!part.padding) {
              ASSERT_EQ(part.first % micro, 0) << "composition depends on the world size";
              for (int64_t i = 0; i < part.rows; ++i) {
                ++seen[static_cast<size_t>(part.first + i)];
              }
            }
          }
        }
        for (int count : seen) {
          ASSERT_EQ(count, 1) << "global " << global << " micro " << micro << " world " << world;
        }
      }
    }
  }
}

TEST(PlanStep, ShortRanksEndWithPadding) {
  // Three micro-batches on two ranks: two and one.
  const auto first = PlanStep(5, 2, 2, 0);
  const auto second = PlanStep(5, 2, 2, 1);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1].first, 2);
  EXPECT_FALSE(first[1].padding);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].first, 4);
  EXPECT_EQ(second[0].rows, 1);
  EXPECT_FALSE(second[0].padding);
  EXPECT_TRUE(second[1].padding);
}

// A job that is resized again and again sees each sample of each epoch exactly once, in the order of the cursor.
TEST(PlanStep, ResizingNeitherRepeatsNorSkips_Bug2_6_60) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int64_t kSamples = 90;
  constexpr int64_t kGlobal = 10;
  std::map<int64_t, int> epochs[3];
  int64_t cursor = 0;
  for (int step = 0; step < 27; ++step) {
    const int world = static_cast<int>(random() % kGlobal) + 1;
    std::map<int64_t, int64_t> by_cursor;
    for (int rank = 0; rank < world; ++rank) {
      for (const MicroBatchPlan& part : PlanStep(kGlobal, 3, world, rank)) {
        for (int64_t i = 0; !part.padding && i < part.rows; ++i) {
          by_cursor[cursor + part.first + i] = SampleIndex(99, kSamples, cursor + part.first + i);
        }
      }
    }
    ASSERT_EQ(by_cursor.size(), static_cast<size_t>(kGlobal));
    for (const auto& [at, sample] : by_cursor) {
      ++epochs[at / kSamples][sample];
    }
    cursor += kGlobal;
  }
  for (const auto& epoch : epochs) {
    ASSERT_EQ(epoch.size(), static_cast<size_t>(kSamples));
    for (const auto& [sample, count] : epoch) {
      ASSERT_EQ(count, 1) << sample;
    }
  }
}

TEST(BatchReader, RowsAreSamplesWithTheirNextToken) {
  TempFiles files;
  auto source = TokenSource::Open(Format::kText, {files.Write("a", "abcdefghijklm")}, 256).value();
  const auto reader = BatchReader::Make(*source, {4, Order::kSequential, 0, {}}).value();
  EXPECT_EQ(reader.samples(), 3);
  const at::Tensor batch = reader.Load(1, 3).value().tokens;
  EXPECT_EQ(batch.sizes(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(batch.scalar_type(), at::kLong);
  const auto row = [&](int64_t i) {
    std::string text;
    for (int64_t j = 0; j < 5; ++j) {
      text += static_cast<char>(batch[i][j].item<int64_t>());
    }
    return text;
  };
  EXPECT_EQ(row(0), "efghi");
  EXPECT_EQ(row(1), "ijklm");
  EXPECT_EQ(row(2), "abcde");  // validation starts again after the last sample
}

TEST(BatchReader, ShuffledRowsFollowTheSampler) {
  TempFiles files;
  std::string text;
  for (int i = 0; i < 101; ++i) {
    text += static_cast<char>(i);
  }
  auto source = TokenSource::Open(Format::kText, {files.Write("a", text)}, 256).value();
  const auto reader = BatchReader::Make(*source, {2, Order::kShuffled, 5, {}}).value();
  const at::Tensor batch = reader.Load(45, 10).value().tokens;
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(batch[i][0].item<int64_t>(), 2 * SampleIndex(5, 50, 45 + i));
  }
}

TEST(BatchReader, RefusesDataShorterThanOneSample) {
  TempFiles files;
  auto source = TokenSource::Open(Format::kText, {files.Write("a", "abcd")}, 256).value();
  auto reader = BatchReader::Make(*source, {4, Order::kShuffled, 5, {}});
  ASSERT_FALSE(reader.has_value());
  EXPECT_NE(reader.error().message.find("4 tokens"), std::string::npos);
}

// Each source of a mixture goes through its own samples in its own order; nothing depends on where reading starts.
TEST(BatchReader, MixturesTakeEachSourceInItsOwnOrder) {
  TempFiles files;
  auto a = TokenSource::Open(Format::kText, {files.Write("a", std::string(41, 'a'))}, 256).value();
  std::string text;
  for (int i = 0; i < 61; ++i) text += static_cast<char>(128 + i);
  auto b = TokenSource::Open(Format::kText, {files.Write("b", text)}, 256).value();
  const auto mixture = Mixture::Make({1, 3}).value();
  const auto reader = BatchReader::Make({a.get(), b.get()}, mixture, {4, Order::kShuffled, 9, {}}).value();
  EXPECT_EQ(reader.samples(), 10 + 15);
  std::map<int64_t, int> seen;
  for (int64_t cursor = 0; cursor < 60; ++cursor) {
    const Batch batch = reader.Load(cursor, 1).value();
    const int64_t first = batch.tokens[0][0].item<int64_t>();
    EXPECT_EQ(first == 'a', mixture.At(cursor).source == 0);
    EXPECT_FALSE(batch.weights.defined());
    EXPECT_EQ(batch.targets, 4);
    if (first != 'a') ++seen[first];
  }
  // 45 of the second source's 15 samples: three epochs.
  ASSERT_EQ(seen.size(), 15U);
  for (const auto& [first, count] : seen) EXPECT_EQ(count, 3) << first;
  EXPECT_TRUE(at::equal(reader.Load(17, 20).value().tokens.narrow(0, 3, 4), reader.Load(20, 4).value().tokens));
}

TEST(BatchReader, FingerprintOfAMixtureKnowsSourcesAndShares) {
  TempFiles files;
  auto a = TokenSource::Open(Format::kText, {files.Write("a", "abcdefghijk")}, 256).value();
  auto b = TokenSource::Open(Format::kText, {files.Write("b", "lmnopqrstuv")}, 256).value();
  const auto print = [&](std::vector<const TokenSource*> sources, std::vector<double> weights) {
    return BatchReader::Make(std::move(sources), Mixture::Make(weights).value(), {4, Order::kShuffled, 9, {}})
        .value()
        .fingerprint();
  };
  EXPECT_EQ(print({a.get()}, {3}), a->fingerprint());
  EXPECT_EQ(print({a.get(), b.get()}, {1, 2}), print({a.get(), b.get()}, {0.5, 1}));
  EXPECT_NE(print({a.get(), b.get()}, {1, 2}), print({a.get(), b.get()}, {2, 1}));
  EXPECT_NE(print({a.get(), b.get()}, {1, 1}), print({b.get(), a.get()}, {1, 1}));
}

TEST(BatchReader, TargetsAfterASeparatorDoNotCount) {
  TempFiles files;
  auto source = TokenSource::Open(Format::kText, {files.Write("a", "ab|cd|e||f|gh")}, 256).value();
  const auto reader = BatchReader::Make(*source, {6, Order::kSequential, 0, '|'}).value();
  const Batch batch = reader.Load(0, 2).value();
  // Inputs a b | c d | and e | | f | g; the target of a separator is the start of another document.
  const at::Tensor want = at::tensor({1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1}, at::kFloat).view({2, 6});
  EXPECT_TRUE(at::equal(batch.weights, want)) << batch.weights;
  EXPECT_EQ(batch.targets, 7);
}

}  // namespace
}  // namespace trainyard::data
