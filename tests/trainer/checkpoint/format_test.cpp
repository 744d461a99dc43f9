#include "trainer/checkpoint/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/checkpoint/block_hashes.h"
#include "trainer/checkpoint/manifest.h"

namespace trainyard::checkpoint {
namespace {

TEST(Format, StepDirectoriesHaveOneSpellingEach) {
  EXPECT_EQ(StepDirectory(200), "step-00000200");
  EXPECT_EQ(StepDirectory(123'456'789'012), "step-123456789012");
  EXPECT_EQ(ParseStepDirectory("step-00000200"), 200);
  EXPECT_EQ(ParseStepDirectory("step-123456789012"), 123'456'789'012);
  for (const char* name : {"step-200", "step-000000200", "step-0000020x", "step-", "step--0000200", "step-00000200.tmp",
                           "Step-00000200", "abandoned-3", ".staging", "step-9999999999999999999999"}) {
    EXPECT_EQ(ParseStepDirectory(name), std::nullopt) << name;
  }
}

TEST(Format, ShardsAreNamedAsPyTorchNamesThem) {
  EXPECT_EQ(ShardPath(kModelGroup, 0), "model/shard-00001-model-00001-of-00001.safetensors");
  EXPECT_EQ(ShardPath(kOptimGroup, 1023), "optim/shard-01024-model-00001-of-00001.safetensors");
  EXPECT_EQ(HashPath(ShardPath(kModelGroup, 0)), "model/shard-00001-model-00001-of-00001.hashes");
}

TEST(Format, HashBlocksArePowersOfTwoNearAChunk256th) {
  EXPECT_EQ(BlockBytes(1), 4096);
  EXPECT_EQ(BlockBytes(2 << 20), 8192);
  EXPECT_EQ(BlockBytes((4 << 20) - 1), 8192);
  EXPECT_EQ(BlockBytes(int64_t{256} << 20), 1 << 20);
  EXPECT_EQ(BlockBytes(int64_t{1} << 40), 1 << 20);
}

TEST(Format, ImpossibleSlicesAreRefused) {
  const TensorSlice good{"w", "F32", {4, 2}, {1, 0}, {3, 2}, nullptr};
  EXPECT_TRUE(CheckSlice(good));
  const auto message = [&](auto change) {
    TensorSlice slice = good;
    change(slice);
    Status s = CheckSlice(slice);
    return s ? "fine" : s.error().message;
  };
  EXPECT_THAT(message([](auto& s) { s.name = ""; }), testing::HasSubstr("printable"));
  EXPECT_THAT(message([](auto& s) { s.name = "__metadata__"; }), testing::HasSubstr("__metadata__"));
  EXPECT_THAT(message([](auto& s) { s.dtype = "F31"; }), testing::HasSubstr("no dtype \"F31\""));
  EXPECT_THAT(message([](auto& s) { s.offset = {2, 0}; }), testing::HasSubstr("leaves dimension 0 of 4"));
  EXPECT_THAT(message([](auto& s) { s.shape = {-1, 2}; }), testing::HasSubstr("leaves dimension 0"));
  EXPECT_THAT(message([](auto& s) { s.shape = {3}; }), testing::HasSubstr("need 2 dimensions"));
  EXPECT_THAT(message([](auto& s) { s.offset = {INT64_MAX, 0}; }), testing::HasSubstr("leaves dimension 0"));
  EXPECT_THAT(message([](auto& s) { s.global_shape = {int64_t{1} << 40, int64_t{1} << 40}; }),
              testing::HasSubstr("too large"));
}

TEST(Format, HashFilesComeBackAndNothingElseIsTaken) {
  const BlockHashes hashes{7, {{10'000, 4096, {1, 2, 3}}, {1, 4096, {9}}}};
  const std::string text = EncodeHashes(hashes);
  const Result<BlockHashes> back = DecodeHashes(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, hashes);
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(DecodeHashes(text.substr(0, n))) << n;
  EXPECT_FALSE(DecodeHashes(text + "x"));
  std::string huge = text;
  huge.replace(16, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");  // a count that no memory would hold
  EXPECT_FALSE(DecodeHashes(huge));
}

Manifest SmallManifest() {
  Manifest m;
  m.step = 5;
  m.world = 2;
  m.fence = {"uid", 3, 1};
  m.created_ms = 1'700'000'000'000;
  m.tensors = {{"a", "model", "F32", {3, 2}}, {"empty", "model", "F32", {0}}};
  m.files.push_back({ShardPath("model", 0), 0, 4096 + 16, 4096, 56, 0xabc, {{0, {{0, 0}, {2, 2}}, 4096, 4112}}});
  m.files.push_back({ShardPath("model", 1), 1, 4096 + 8, 4096, 56, 0xdef, {{0, {{2, 0}, {1, 2}}, 4096, 4104}}});
  return m;
}

TEST(Manifest, ComesBackAsItWas) {
  const std::string text = EncodeManifest(SmallManifest());
  const Result<Manifest> back = DecodeManifest(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(EncodeManifest(*back), text);
  EXPECT_EQ(back->fence.round, 1);
  EXPECT_TRUE(FindUntiled(*back).empty());
}

TEST(Manifest, EveryTruncationAndEveryFlippedBitIsNoticed) {
  const std::string text = EncodeManifest(SmallManifest());
  // Without its last byte, the newline, the text says the same.
  for (size_t n = 0; n + 1 < text.size(); ++n) EXPECT_FALSE(DecodeManifest(text.substr(0, n))) << n;
  for (size_t i = 0; i < text.size() * 8; ++i) {
    std::string flipped = text;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
    EXPECT_FALSE(DecodeManifest(flipped)) << "bit " << i;
  }
}

TEST(Manifest, RulesAreCheckedEvenWhenTheDigestIsRight) {
  const auto problem = [](auto change) {
    Manifest m = SmallManifest();
    change(m);
    const Result<Manifest> back = DecodeManifest(EncodeManifest(m));
    return back ? "fine" : back.error().message;
  };
  EXPECT_THAT(problem([](auto& m) { m.files[0].path = "../../etc/passwd"; }), testing::HasSubstr("unexpected path"));
  EXPECT_THAT(problem([](auto& m) { m.files[1].path = m.files[0].path; }), testing::HasSubstr("listed twice"));
  EXPECT_THAT(problem([](auto& m) { m.files[0].rank = 2; }), testing::HasSubstr("rank 2 of 2"));
  EXPECT_THAT(problem([](auto& m) { m.files[0].chunks[0].tensor = 9; }), testing::HasSubstr("unknown tensor"));
  EXPECT_THAT(problem([](auto& m) { m.files[0].chunks[0].end = 4120; }), testing::HasSubstr("wrong byte range"));
  EXPECT_THAT(problem([](auto& m) { m.files[0].chunks[0].box.offset = {2, 0}; }),
              testing::HasSubstr("leaves dimension"));
  EXPECT_THAT(problem([](auto& m) { m.files[0].bytes = 1; }), testing::HasSubstr("its size"));
  EXPECT_THAT(problem([](auto& m) { m.tensors[1].name = "a"; }), testing::HasSubstr("listed twice"));
  EXPECT_THAT(problem([](auto& m) { m.tensors[0].dtype = "X"; }), testing::HasSubstr("no dtype"));
  EXPECT_THAT(problem([](auto& m) { m.fence.job_uid = "../x"; }), testing::HasSubstr("job UID"));
}

TEST(Manifest, ABoxThatNoFileHoldsIsNotInferred) {
  Manifest m = SmallManifest();
  m.files.pop_back();
  const std::vector<Untiled> untiled = FindUntiled(m);
  ASSERT_EQ(untiled.size(), 1u);
  EXPECT_EQ(untiled[0].tensor, "a");
  EXPECT_EQ(untiled[0].reason, "rows [2, 3) are in no file");
}

}  // namespace
}  // namespace trainyard::checkpoint
