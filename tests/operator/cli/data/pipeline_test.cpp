#include "operator/cli/data/pipeline.h"

#include <atomic>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

namespace trainyard::cli {
namespace {

// Blocks 0, 1, 2, ... as their number of letters; `end` of them.
Pipeline::Read Numbers(std::atomic<int64_t>& read, int64_t end) {
  return [&read, end]() -> Result<std::optional<Block>> {
    if (read == end) return std::nullopt;
    Block block;
    block.line = read++;
    return block;
  };
}

Result<EncodedBlock> Number(const Block& block) {
  EncodedBlock out;
  out.bytes = block.line;
  return out;
}

// Takes until the end; the numbers in the order in which they came, -1 for an error.
std::vector<int64_t> TakeAll(Pipeline& pipeline, std::string* error = nullptr) {
  std::vector<int64_t> taken;
  for (EncodedBlock block;;) {
    const Result<Pipeline::State> state = pipeline.Take(block, Milliseconds(60'000));
    if (!state) {
      taken.push_back(-1);
      if (error != nullptr) *error = state.error().message;
      return taken;
    }
    if (*state != Pipeline::State::kBlock) return taken;
    taken.push_back(block.bytes);
  }
}

TEST(Pipeline, KeepsTheOrderOnAnyNumberOfThreads) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const int threads : {1, 2, 7}) {
    std::atomic<int64_t> read{0};
    std::atomic<uint32_t> turns{seed};
    const auto uneven = [&](const Block& block) {
      volatile uint32_t spin = turns.fetch_add(2654435761u) % 20'000;
      while (spin > 0) spin = spin - 1;
      return Number(block);
    };
    Pipeline pipeline(Numbers(read, 300), uneven, threads);
    const std::vector<int64_t> taken = TakeAll(pipeline);
    ASSERT_EQ(taken.size(), 300U);
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(taken[static_cast<size_t>(i)], i);
  }
}

// What is read and not taken stays within a few blocks a thread, so that memory does not grow with the input.
TEST(Pipeline, ReadsOnlySoFarAhead) {
  std::atomic<int64_t> read{0};
  Pipeline pipeline(Numbers(read, 1'000'000), Number, 2);
  EncodedBlock block;
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(pipeline.Take(block, Milliseconds(60'000)).value(), Pipeline::State::kBlock);
    ASSERT_LE(read.load(), i + 1 + 8);
  }
}

TEST(Pipeline, TheFirstErrorInTheOrderOfTheInputCounts) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int64_t> read{0};
    const auto fails = [](const Block& block) -> Result<EncodedBlock> {
      if (block.line == 20 || block.line == 21) {
        return Fail(ErrorCode::kInvalidArgument, "line " + std::to_string(block.line));
      }
      return Number(block);
    };
    Pipeline pipeline(Numbers(read, 300), fails, 4);
    std::string error;
    EXPECT_EQ(TakeAll(pipeline, &error).size(), 21U);
    EXPECT_EQ(error, "line 20");
  }
}

TEST(Pipeline, ErrorsOfReadingAndExceptionsAreResults) {
  std::string error;
  int reads = 0;
  const auto read = [&]() -> Result<std::optional<Block>> {
    if (reads++ == 3) return Fail(ErrorCode::kUnavailable, "the disk is gone");
    return Block();
  };
  Pipeline reading(read, Number, 2);
  EXPECT_EQ(TakeAll(reading, &error).size(), 4U);
  EXPECT_EQ(error, "the disk is gone");

  std::atomic<int64_t> count{0};
  Pipeline throwing(
      Numbers(count, 9), [](const Block&) -> Result<EncodedBlock> { throw std::runtime_error("a bug"); }, 2);
  EXPECT_EQ(TakeAll(throwing, &error).size(), 1U);
  EXPECT_EQ(error, "a bug");
}

}  // namespace
}  // namespace trainyard::cli
