// Adapters of every family by their tensors, and the hash of the model that they belong to.
#include "trainer/checkpoint/adapter.h"

#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/compare.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/contract/row_hash.h"

namespace trainyard::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Adapter, MatricesOfTheBlocksAndNothingElse) {
  std::vector<std::string> words;
  for (const BlockMatrix& matrix : BlockMatrices(SmallQwen3())) {
    if (matrix.name.starts_with("model.layers.1.")) words.push_back(matrix.word());
    EXPECT_FALSE(matrix.transposed);
  }
  EXPECT_THAT(words, ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"));
  EXPECT_EQ(BlockMatrices(SmallQwen3()).size(), 14u);
  const AdapterDescription adapter{.rank = 3, .alpha = 6, .targets = {"c_attn", "c_fc"}};
  const std::vector<TensorInfo> tensors = AdapterTensorsOf(SmallGpt2(), adapter);
  ASSERT_EQ(tensors.size(), 8u);
  EXPECT_EQ(tensors[0].name, "transformer.h.0.attn.c_attn.lora_A.weight");
  EXPECT_THAT(tensors[0].global_shape, ElementsAre(3, 16));
  EXPECT_EQ(tensors[3].name, "transformer.h.0.mlp.c_fc.lora_B.weight");
  EXPECT_THAT(tensors[3].global_shape, ElementsAre(24, 3)) << "as PEFT has it, though the matrix is [in, out]";
}

TEST(Adapter, TargetsAreSortedAndKnown) {
  EXPECT_THAT(*ResolveTargets(SmallLlama(), {"v_proj", "q_proj", "v_proj"}), ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(*ResolveTargets(SmallGpt2(), {}), ElementsAre("c_attn", "c_fc", "c_proj"));
  EXPECT_EQ(ResolveTargets(SmallLlama(), {"q_proj", "c_attn"}).error().message,
            "the model has no matrix c_attn in its blocks: it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
            "down_proj");
}

// Against the xxhash package of Python.
TEST(BaseHash, RowsAddUp) {
  std::vector<uint8_t> bytes(24);
  std::iota(bytes.begin(), bytes.end(), 0);
  EXPECT_EQ(HexDigest(contract::HashRows("model.norm.weight", 0, 6, 4, bytes.data())), "e0b4a88b82f49771");
  EXPECT_EQ(HexDigest(contract::HashRows("model.norm.weight", 2, 2, 4, bytes.data() + 8)), "b909a012af1c039e");
}

class BaseHashTest : public testing::Test {
 protected:
  BaseReference HashOf(const ModelDescription& model, const HuggingFaceOptions& options) {
    const std::string directory = temp_.path() + "/" + std::to_string(++count_);
    WriteHuggingFace(directory, model, directory + "-job", options);
    Result<ForeignModel> source = ForeignModel::Open(directory, model);
    return *HashBase(*source, model, directory);
  }
  const TempDirectory temp_;
  int count_ = 0;
};

TEST_F(BaseHashTest, SaysWhatTheFilesHoldAndNotHowTheyAreSplit) {
  const BaseReference base = HashOf(SmallQwen2(), {.dtype = "BF16"});
  EXPECT_EQ(base.tensors, static_cast<int64_t>(TensorsOf(SmallQwen2()).size()));
  EXPECT_EQ(HashOf(SmallQwen2(), {.dtype = "BF16", .shard_bytes = 2000}).hash, base.hash);
  const BaseReference wide = HashOf(SmallQwen2(), {.dtype = "F32"});
  EXPECT_NE(wide.hash, base.hash) << "other bytes";
  EXPECT_EQ(wide.bytes, 2 * base.bytes);
  EXPECT_EQ(BaseDifference(base, base), "");
  EXPECT_EQ(BaseDifference(base, wide),
            "the adapter belongs to another base: it was trained on " + HexDigest(base.hash) + " (" +
                std::to_string(base.tensors) + " tensors, " + std::to_string(base.bytes) + " bytes), and this is " +
                HexDigest(wide.hash) + " (" + std::to_string(wide.tensors) + " tensors, " + std::to_string(wide.bytes) +
                " bytes), in " + wide.directory + "; the other was in " + base.directory);
}

// What ranks read row by row, converted as they keep it, adds up to what a tool reads from end to end.
TEST_F(BaseHashTest, TheSameAtEveryNumberOfRanks) {
  const ModelDescription model = SmallGpt2();
  const BaseReference base = HashOf(model, {.dtype = "BF16"});
  for (const int world : {1, 2, 3, 7}) {
    uint64_t hash = 0;
    for (int rank = 0; rank < world; ++rank) {
      Result<ForeignModel> source = ForeignModel::Open(base.directory, model);
      for (const TensorInfo& tensor : TensorsOf(model)) {
        const int64_t rows = tensor.global_shape[0], each = (rows + world - 1) / world;
        TensorSlice slice{tensor.name, "F32", tensor.global_shape, {}, tensor.global_shape, nullptr};
        slice.offset.assign(tensor.global_shape.size(), 0);
        slice.offset[0] = std::min(rows, rank * each);
        slice.shape[0] = std::min(rows, slice.offset[0] + each) - slice.offset[0];
        std::vector<float> plain(static_cast<size_t>(*ElementCount(slice.shape))), hashed(plain.size());
        if (plain.empty()) continue;
        slice.data = plain.data();
        ASSERT_TRUE(source->Read({slice}));
        slice.data = hashed.data();
        ASSERT_TRUE(source->Read({slice}, &hash));
        EXPECT_EQ(plain, hashed);
      }
    }
    EXPECT_EQ(HexDigest(hash), HexDigest(base.hash)) << world;
  }
}

TEST(AdapterCheckpoint, IsReadAsWhatItIs) {
  const TempDirectory temp;
  const AdapterState state{
      .model = SmallGpt2(),
      .adapter = {.rank = 2, .alpha = 5, .dropout = 0.1, .targets = {"c_attn"}, .nf4 = true},
      .base = BaseReference{.hash = 0xfedcba9876543210, .tensors = 28, .bytes = 99, .directory = "b"}};
  const std::string path = SaveAdapter(temp.path() + "/job", state, 7, 3);
  Result<Reader> reader = Reader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  const Result<AdapterState> read = DescribeAdapter(*reader);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, state.model);
  EXPECT_EQ(read->adapter, state.adapter);
  EXPECT_EQ(read->base->hash, state.base->hash);
  EXPECT_EQ(read->base->directory, "b");
  EXPECT_TRUE(Verify(path)->ok());
  EXPECT_TRUE(Compare(*reader, *reader)->same());
  EXPECT_THAT(DescribeModel(*reader).error().message, HasSubstr("holds an adapter and not its base"));
  Result<Reader> whole = Reader::Open(SaveModel(temp.path() + "/whole", SmallGpt2(), 7, 1));
  EXPECT_EQ(DescribeAdapter(*whole).error().message, "the checkpoint is of a whole model, and not of an adapter");
  AdapterState other = state;
  other.adapter.targets = {"c_fc"};
  Result<Reader> unlike = Reader::Open(SaveAdapter(temp.path() + "/other", other, 7, 1));
  EXPECT_TRUE(DescribeAdapter(*unlike));
  // Where the base lay is no part of the state; which it was is.
  other = state;
  other.base->directory = "elsewhere";
  Result<Reader> moved = Reader::Open(SaveAdapter(temp.path() + "/moved", other, 7, 3));
  EXPECT_THAT(Compare(*reader, *moved)->train_state, testing::IsEmpty());
  other.base->hash = 1;
  Result<Reader> rebased = Reader::Open(SaveAdapter(temp.path() + "/rebased", other, 7, 3));
  EXPECT_THAT(Compare(*reader, *rebased)->train_state, testing::ElementsAre("base"));
}

}  // namespace
}  // namespace trainyard::checkpoint
