#include "trainer/data/background_reader.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace trainyard::data {
namespace {

// Token at position i is i % 251; reading beyond `good` fails, and a copy can be held up.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(int64_t tokens) : tokens_(tokens), good_(tokens) {}
  int64_t tokens() const override { return tokens_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const TokenOrigin& origin() const override { return origin_; }
  bool has_target_bits() const override { return false; }
  Status CopyTargetBits(int64_t /*pos*/, int64_t n, uint8_t* out) const override {
    std::fill_n(out, n, uint8_t{1});
    return {};
  }
  Status Copy(int64_t pos, int64_t n, int64_t* out) const override {
    ++copies_;
    copies_.notify_all();
    if (throws_) throw std::runtime_error("out of something");
    if (pos + n > good_) return Fail(ErrorCode::kDataLoss, "token " + std::to_string(good_) + " is damaged");
    for (int64_t i = 0; i < n; ++i) out[i] = (pos + i) % 251;
    return {};
  }

  const int64_t tokens_;
  std::atomic<int64_t> good_;
  std::atomic<bool> throws_{false};
  mutable std::atomic<int64_t> copies_{0};

 private:
  const std::string fingerprint_ = "0000000000000000";
  const TokenOrigin origin_;
};

BackgroundReader::Options Plan(int64_t steps, size_t depth = 4) {
  BackgroundReader::Options options;
  options.global_batch = 6;
  options.plan = PlanStep(6, 2, 2, 0);  // two micro-batches of two
  options.end = steps * options.global_batch;
  options.depth = depth;
  return options;
}

class BackgroundReaderTest : public ::testing::Test {
 protected:
  bool Same(const Result<Batch>& got, int64_t cursor, size_t index) const {
    const MicroBatchPlan part = Plan(1).plan[index];
    return got && at::equal(got->tokens, reader_.Load(cursor + part.first, part.rows).value().tokens);
  }
  CountingSource source_{100'001};
  BatchReader reader_ = BatchReader::Make(source_, {10, Order::kSequential, 0, {}}).value();
};

TEST_F(BackgroundReaderTest, GivesWhatWouldBeReadAtOnce) {
  BackgroundReader feed(reader_, Plan(50));
  for (int64_t step = 0; step < 52; ++step) {  // beyond the end too: then it reads at once
    for (const size_t i : {0, 1}) ASSERT_TRUE(Same(feed.Next(step * 6, i), step * 6, i)) << step;
  }
}

// Steps that are done again, skipped or begun in the middle change the wait and nothing else.
TEST_F(BackgroundReaderTest, AnyOrderOfQuestionsGetsTheSameAnswers) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  BackgroundReader feed(reader_, Plan(40, 1 + random() % 5));
  int64_t cursor = 0;
  size_t index = 0;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(Same(feed.Next(cursor, index), cursor, index));
    if (random() % 4 == 0) {
      cursor = static_cast<int64_t>(random() % 240);  // resumed jobs begin anywhere
      index = random() % 2;
    } else if (index == 0) {
      index = 1;
    } else {
      index = 0;
      cursor += 6;
    }
  }
}

TEST_F(BackgroundReaderTest, ReadsAheadAndNoFurtherThanTheQueue) {
  constexpr int kDepth = 3, kSequences = 2;  // of a micro-batch
  BackgroundReader feed(reader_, Plan(50, kDepth));
  int taken = 0;
  for (int64_t step = 0; step < 5; ++step) {
    for (const size_t i : {0, 1}) {
      ASSERT_TRUE(feed.Next(step * 6, i));
      ++taken;
      // More than half of the queue fills up by itself, since the reader is woken when half of it is left.
      const int64_t least = kSequences * (taken + kDepth / 2 + 1);
      for (int64_t copies = source_.copies_; copies < least; copies = source_.copies_) source_.copies_.wait(copies);
      EXPECT_LE(source_.copies_, kSequences * (taken + kDepth));
    }
  }
}

TEST_F(BackgroundReaderTest, NothingIsReadBeyondTheEnd) {
  BackgroundReader feed(reader_, Plan(2, 8));
  for (int64_t step = 0; step < 2; ++step) {
    for (const size_t i : {0, 1}) ASSERT_TRUE(feed.Next(step * 6, i));
  }
  EXPECT_EQ(source_.copies_, 8);
}

TEST_F(BackgroundReaderTest, ErrorsReachTheStepThatNeedsTheData) {
  source_.good_ = 6 * 10 + 5;  // in the first sequence of the second step
  BackgroundReader feed(reader_, Plan(50));
  EXPECT_TRUE(Same(feed.Next(0, 0), 0, 0));
  EXPECT_TRUE(Same(feed.Next(0, 1), 0, 1));
  for (int again = 0; again < 3; ++again) {
    const auto bad = feed.Next(6, 0);
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, ErrorCode::kDataLoss);
    EXPECT_EQ(bad.error().message, "token 65 is damaged");
  }
  source_.good_ = source_.tokens_;  // the mount came back
  EXPECT_TRUE(Same(feed.Next(6, 0), 6, 0));
}

TEST_F(BackgroundReaderTest, WhatAReadThrowsIsThrownToTheStep) {
  BackgroundReader feed(reader_, Plan(50));
  source_.throws_ = true;
  EXPECT_THROW((void)feed.Next(0, 0), std::runtime_error);
  source_.throws_ = false;
  EXPECT_TRUE(Same(feed.Next(0, 0), 0, 0));
}

TEST_F(BackgroundReaderTest, StopsCleanlyAtAnyMoment) {
  for (int i = 0; i < 200; ++i) {
    BackgroundReader feed(reader_, Plan(1000));
    if (i % 3 == 0) continue;
    ASSERT_TRUE(feed.Next(0, 0));
  }
}

}  // namespace
}  // namespace trainyard::data
