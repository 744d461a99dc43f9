// Saved at one world size, loaded at another: the same bytes, and hardly more of them read than are owned.
#include <unistd.h>

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

const Fence kFence{"uid", 1, 0};
constexpr int kWorlds[] = {1, 2, 3, 4, 5, 8};

// Uneven rows, fewer rows than ranks, one row, none, one to three dimensions, a scalar, and large ones after small
// ones.
const std::vector<SampleTensor> kShapes = {
    {"even.weight", {16, 8}}, {"uneven.weight", {17, 3}},   {"few.weight", {3, 11}}, {"one.weight", {1, 7}},
    {"bias", {13}},           {"tiny.bias", {2}},           {"empty", {0, 4}},       {"cube", {5, 3, 2}},
    {"scalar", {}},           {"large.weight", {101, 257}}, {"small.bias", {9}},     {"larger.weight", {600, 257}}};

TEST(Reshard, EveryWorldSizeLoadsWhatEveryOtherSaved_Bug1_7_11_14) {
  TempDirectory temp;
  for (int saved : kWorlds) {
    const std::string root = temp.path() + "/" + std::to_string(saved);
    ASSERT_TRUE(TakeOver(root, kFence));
    const Result<CommitInfo> info = SaveSample(root, 3, kFence, saved, kShapes);
    ASSERT_TRUE(info) << info.error().message;
    for (int loaded : kWorlds) {
      EXPECT_EQ(LoadSample(info->path, 3, loaded, kShapes), "") << saved << " -> " << loaded;
    }
  }
}

TEST(Reshard, ThroughAChainOfWorldSizesNothingChanges) {
  TempDirectory temp;
  ASSERT_TRUE(TakeOver(temp.path(), kFence));
  ASSERT_TRUE(SaveSample(temp.path(), 1, kFence, 4, kShapes));
  int64_t step = 1;
  for (int world : {3, 8, 1, 2, 5}) {
    std::vector<std::string> reports;
    for (int rank = 0; rank < world; ++rank) {
      SampleShards shards(kShapes, rank, world, -1);
      Result<Reader> reader = Reader::Open(temp.path() + "/" + StepDirectory(step));
      ASSERT_TRUE(reader);
      ASSERT_TRUE(reader->Read(shards.all()));
      SaveRequest request = SampleRequest(temp.path(), step + 1, kFence, rank, world);
      request.model = shards.model;
      request.optim = shards.optim;
      reports.push_back(WriteShards(request)->manifest);
    }
    ++step;
    ASSERT_TRUE(Commit(SampleRequest(temp.path(), step, kFence, 0, world), "{\"step\": 1}", reports));
    ASSERT_EQ(LoadSample(temp.path() + "/" + StepDirectory(step), 1, 3, kShapes), "") << world;
  }
}

TEST(Reshard, ReadsHardlyMoreThanItOwns_Bug15) {
  // 4.2 million parameters and two moments each: 50 MB.
  const std::vector<SampleTensor> model = {{"a.weight", {2048, 1024}}, {"b.weight", {1000, 2048}}, {"norm", {1024}}};
  TempDirectory temp;
  ASSERT_TRUE(TakeOver(temp.path(), kFence));
  int64_t step = 0;
  for (int saved : {8, 3}) {
    ++step;
    const Result<CommitInfo> info = SaveSample(temp.path(), step, kFence, saved, model);
    ASSERT_TRUE(info);
    for (int loaded : {3, 8}) {
      for (int rank = 0; rank < loaded; ++rank) {
        SampleShards shards(model, rank, loaded, -1);
        Result<Reader> reader = Reader::Open(info->path);
        ASSERT_TRUE(reader);
        ASSERT_TRUE(reader->Read(shards.all()));
        const double ratio = static_cast<double>(reader->bytes_read()) / static_cast<double>(shards.bytes());
        EXPECT_GE(ratio, 1.0);
        EXPECT_LE(ratio, 1.02) << saved << " -> " << loaded << " rank " << rank;
        if (rank == 1) {
          EXPECT_EQ(shards.Wrong(step), 0) << saved << " -> " << loaded;
        }
        if (rank == 0) std::printf("%d -> %d: rank 0 reads %.4f of what it owns\n", saved, loaded, ratio);
      }
    }
  }
}

TEST(Reshard, OpensOnlyTheFilesThatItNeeds_Bug30) {
  TempDirectory temp;
  ASSERT_TRUE(TakeOver(temp.path(), kFence));
  const Result<CommitInfo> info = SaveSample(temp.path(), 1, kFence, 8, {{"w", {64, 16}}});
  ASSERT_TRUE(info);
  // Rank 0 of 2 needs the first four files; the others may as well be gone.
  for (int rank = 4; rank < 8; ++rank) {
    for (std::string_view group : {kModelGroup, kOptimGroup}) {
      ASSERT_EQ(::unlink((info->path + "/" + ShardPath(group, rank)).c_str()), 0);
    }
  }
  Result<Reader> reader = Reader::Open(info->path);
  ASSERT_TRUE(reader);
  SampleShards first({{"w", {64, 16}}}, 0, 2, -1), second({{"w", {64, 16}}}, 1, 2, -1);
  EXPECT_TRUE(reader->Read(first.all()));
  EXPECT_EQ(first.Wrong(1), 0);
  EXPECT_EQ(reader->Read(second.all()).error().code, ErrorCode::kDataLoss);
}

TEST(Reshard, BoxesInEveryDimension) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  TempDirectory temp;
  ASSERT_TRUE(TakeOver(temp.path(), kFence));
  // Saved as a grid of 2 x 3 boxes, as tensor parallelism would.
  const std::vector<int64_t> shape = {37, 129, 5};
  const int64_t rows[] = {0, 20, 37}, columns[] = {0, 1, 70, 129};
  std::vector<std::string> reports;
  for (int rank = 0; rank < 6; ++rank) {
    const int64_t r = rank / 3, c = rank % 3;
    TensorSlice slice{
        "w", "F32", shape, {rows[r], columns[c], 0}, {rows[r + 1] - rows[r], columns[c + 1] - columns[c], 5}, nullptr};
    std::vector<float> memory(static_cast<size_t>(*ElementCount(slice.shape)));
    ForEachElement(slice, [&](int64_t index, int64_t i) {
      memory[static_cast<size_t>(i)] = SampleValue(StableHash("w"), index, 1);
    });
    slice.data = memory.data();
    SaveRequest request = SampleRequest(temp.path(), 1, kFence, rank, 6);
    request.model = {slice};
    reports.push_back(WriteShards(request)->manifest);
  }
  const Result<CommitInfo> info = Commit(SampleRequest(temp.path(), 1, kFence, 0, 6), "{}", reports);
  ASSERT_TRUE(info) << info.error().message;
  for (int round = 0; round < 200; ++round) {
    TensorSlice slice{"w", "F32", shape, {}, {}, nullptr};
    for (int64_t n : shape) {
      const int64_t lo = static_cast<int64_t>(random()) % n;
      slice.offset.push_back(lo);
      slice.shape.push_back(1 + static_cast<int64_t>(random()) % (n - lo));
    }
    std::vector<float> memory(static_cast<size_t>(*ElementCount(slice.shape)), -1.0f);
    slice.data = memory.data();
    Result<Reader> reader = Reader::Open(info->path);
    ASSERT_TRUE(reader->Read({slice}));
    int64_t wrong = 0;
    ForEachElement(slice, [&](int64_t index, int64_t i) {
      wrong += memory[static_cast<size_t>(i)] != SampleValue(StableHash("w"), index, 1);
    });
    ASSERT_EQ(wrong, 0) << "seed " << seed << " round " << round;
  }
}

TEST(Reshard, OverlappingWishesAreAllFilled) {
  TempDirectory temp;
  ASSERT_TRUE(TakeOver(temp.path(), kFence));
  const std::vector<SampleTensor> model = {{"w", {4096, 3}}};
  const Result<CommitInfo> info = SaveSample(temp.path(), 1, kFence, 2, model);
  ASSERT_TRUE(info);
  std::vector<float> a(3 * 3000, -1.0f), b(3 * 3000, -1.0f), none;
  const std::vector<TensorSlice> wanted = {{"w", "F32", {4096, 3}, {1000, 0}, {3000, 3}, a.data()},
                                           {"w", "F32", {4096, 3}, {0, 0}, {3000, 3}, b.data()},
                                           {"w", "F32", {4096, 3}, {4096, 0}, {0, 3}, none.data()}};
  Result<Reader> reader = Reader::Open(info->path);
  ASSERT_TRUE(reader->Read(wanted));
  for (const TensorSlice& slice : {wanted[0], wanted[1]}) {
    ForEachElement(slice, [&](int64_t index, int64_t i) {
      ASSERT_EQ(static_cast<const float*>(slice.data)[i], SampleValue(StableHash("w"), index, 1));
    });
  }
}

}  // namespace
}  // namespace trainyard::checkpoint
