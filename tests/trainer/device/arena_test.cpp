#include "trainer/device/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace trainyard::device {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(Arena, HandsTheSameBytesOutAgain) {
  Arena arena(256 * kMiB);
  void* const first = arena.Allocate(kMiB);
  void* const second = arena.Allocate(2 * kMiB);
  EXPECT_EQ(arena.stats().live, 3 * kMiB);
  arena.Free(first);
  EXPECT_EQ(arena.Allocate(kMiB), first);
  arena.Free(second);
  EXPECT_EQ(arena.Allocate(2 * kMiB), second);
  EXPECT_EQ(arena.stats().mapped, 3 * kMiB);
  arena.Free(first), arena.Free(second);
  EXPECT_EQ(arena.stats().live, 0U);
}

TEST(Arena, MergesNeighboursAndTakesTheSmallestGapThatFits) {
  Arena arena(256 * kMiB);
  std::vector<void*> blocks;
  for (size_t size : {1, 2, 1, 4, 1}) blocks.push_back(arena.Allocate(size * kMiB));
  arena.Free(blocks[3]), arena.Free(blocks[1]);
  EXPECT_EQ(arena.Allocate(2 * kMiB), blocks[1]) << "not a part of the larger gap, which lies free as well";
  arena.Free(blocks[1]);
  arena.Free(blocks[0]), arena.Free(blocks[2]);  // between gaps on both sides
  EXPECT_EQ(arena.Allocate(8 * kMiB), blocks[0]);
  EXPECT_EQ(arena.stats().mapped, 9 * kMiB);
  arena.Free(blocks[0]), arena.Free(blocks[4]);
  EXPECT_EQ(arena.Allocate(20 * kMiB), blocks[0]) << "the last gap grows";
  EXPECT_EQ(arena.stats().mapped, 20 * kMiB);
  arena.Free(blocks[0]);
}

TEST(Arena, WhatDoesNotFitComesFromMalloc) {
  Arena small(1);  // as much as is worth having
  const size_t reserved = small.stats().reserved;
  EXPECT_EQ(reserved, 32 * kMiB);
  void* const in = small.Allocate(reserved);
  void* const out = small.Allocate(kMiB);
  ASSERT_NE(out, nullptr);
  std::memset(out, 1, kMiB);
  EXPECT_EQ(small.stats().live, reserved);
  small.Free(out);
  EXPECT_EQ(small.stats().live, reserved);
  small.Free(in);
  EXPECT_EQ(small.stats().live, 0U);
  EXPECT_EQ(small.Allocate(size_t{1} << 60), nullptr);
}

// Random blocks of all sizes, each filled with its own byte; the seed is printed when it fails.
void Churn(Arena& arena, uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  struct Block {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  const auto check_and_free = [&](size_t i) {
    const Block block = blocks[i];
    ASSERT_TRUE(std::all_of(block.data, block.data + block.bytes, [&](unsigned char c) { return c == block.mark; }));
    arena.Free(block.data);
    blocks[i] = blocks.back();
    blocks.pop_back();
  };
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 30 || (!blocks.empty() && random() % 2 == 0)) {
      check_and_free(random() % blocks.size());
    } else {
      const size_t bytes = 1 + random() % (size_t{1} << (4 + random() % 15));
      auto* const data = static_cast<unsigned char*>(arena.Allocate(bytes));
      ASSERT_NE(data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % Arena::kAlignment, 0U);
      const auto mark = static_cast<unsigned char>(random());
      std::memset(data, mark, bytes);
      blocks.push_back({data, bytes, mark});
    }
  }
  while (!blocks.empty()) check_and_free(0);
}

TEST(Arena, ThreadsDoNotGetEachOthersBytes) {
  Arena arena(64 * kMiB);
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 4; ++seed) threads.emplace_back([&arena, seed] { Churn(arena, seed); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.stats().live, 0U);
  EXPECT_LE(arena.stats().mapped, 64 * kMiB);
}

}  // namespace
}  // namespace trainyard::device
