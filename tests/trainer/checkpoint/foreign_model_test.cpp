// A model of others straight into shards: each rank reads the bytes of its rows and holds little besides.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/foreign_model.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

// Rows of a rank: [r*ceil(R/W), min(R, (r+1)*ceil(R/W))).
Box RowsOf(const std::vector<int64_t>& shape, int rank, int world) {
  const int64_t each = (shape[0] + world - 1) / world, lo = std::min(shape[0], rank * each);
  Box box{std::vector<int64_t>(shape.size(), 0), shape};
  box.offset[0] = lo;
  box.shape[0] = std::min(shape[0], lo + each) - lo;
  return box;
}

struct Shard {
  std::vector<TensorSlice> slices;
  std::vector<std::vector<float>> values;
  int64_t bytes = 0;  // in fp32
};
Shard ShardOf(const ModelDescription& model, int rank, int world) {
  Shard shard;
  for (const TensorInfo& tensor : TensorsOf(model)) {
    const Box box = RowsOf(tensor.global_shape, rank, world);
    if (box.elements() == 0) continue;
    shard.values.emplace_back(static_cast<size_t>(box.elements()));
    shard.bytes += box.elements() * 4;
    shard.slices.push_back(
        {tensor.name, "F32", tensor.global_shape, box.offset, box.shape, shard.values.back().data()});
  }
  return shard;
}

class ForeignModelTest : public testing::Test {
 protected:
  void MakeSource(const ModelDescription& model, const std::string& dtype, int64_t shard_bytes = 0) {
    stdfs::remove_all(source_);
    stdfs::remove_all(temp_.path() + "/job");
    Result<Reader> reader = Reader::Open(SaveModel(temp_.path() + "/job", model, 5, 2, dtype == "F16" ? kFitsF16 : 1));
    ASSERT_TRUE(reader);
    ASSERT_TRUE(ExportHuggingFace(*reader, source_, {.dtype = dtype, .shard_bytes = shard_bytes}));
  }
  std::string Problem(const ModelDescription& model) {
    const Result<ForeignModel> opened = ForeignModel::Open(source_, model);
    return opened ? "none" : opened.error().message;
  }

  TempDirectory temp_{Storage::kMemory};
  const std::string source_ = temp_.path() + "/source";
};

TEST_F(ForeignModelTest, EachRankReadsTheBytesOfItsRowsAndNoOthers) {
  for (const ModelDescription& model : {SmallLlama(), SmallQwen2(), SmallQwen3(), SmallGpt2()}) {
    for (const std::string dtype : {"F32", "BF16", "F16"}) {
      MakeSource(model, dtype, 3000);
      for (const int world : {1, 2, 3}) {
        int64_t all = 0, wrong = 0;
        for (int rank = 0; rank < world; ++rank) {
          Result<ForeignModel> source = ForeignModel::Open(source_, model);
          ASSERT_TRUE(source) << source.error().message;
          Shard shard = ShardOf(model, rank, world);
          ASSERT_TRUE(source->Read(shard.slices));
          EXPECT_EQ(source->bytes_read(), shard.bytes / 4 * *DtypeBytes(dtype)) << "rank " << rank << " of " << world;
          all += source->bytes_read();
          for (const TensorSlice& slice : shard.slices) {
            const int64_t n = Box{slice.offset, slice.shape}.elements();
            const int64_t first = slice.offset[0] * (n / slice.shape[0]);
            for (int64_t i = 0; i < n; ++i) {
              float expected = SampleValue(StableHash(slice.name), first + i, 5) * (dtype == "F16" ? kFitsF16 : 1);
              char stored[4];
              ASSERT_TRUE(ConvertFloats("F32", &expected, 1, dtype, stored));
              ASSERT_TRUE(ConvertFloats(dtype, stored, 1, "F32", &expected));
              wrong += expected != static_cast<const float*>(slice.data)[i];
            }
          }
        }
        EXPECT_EQ(wrong, 0) << dtype << " at " << world;
        int64_t total = 0;
        for (const TensorInfo& t : TensorsOf(model)) total += *ElementCount(t.global_shape) * *DtypeBytes(dtype);
        EXPECT_EQ(all, total) << "all ranks together read each byte once";
      }
    }
  }
}

int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// 168 MB of weights in tensors of up to 42 MB: beyond the shard itself no rank may hold more than a tenth of it and one
// tensor, at 1, 2 and 3 ranks.
TEST_F(ForeignModelTest, MemoryIsTheShardAndAtMostATensor) {
  TempDirectory disk;
  ModelDescription model = SmallLlama();
  model.layers = 3, model.hidden = 512, model.heads = model.kv_heads = 8, model.ffn = 4096, model.vocab = 20480;
  model.tied = true;
  std::vector<SafetensorsTensor> list;
  int64_t largest = 0;
  for (const TensorInfo& t : TensorsOf(model)) {
    list.push_back({t.name, "BF16", t.global_shape, {}});
    largest = std::max(largest, *ElementCount(t.global_shape) * 4);
  }
  {
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(disk.path() + "/model.safetensors", list, false, PosixFileSystem());
    ASSERT_TRUE(writer);
    const std::vector<char> zeros(1 << 20, '\0');
    for (const SafetensorsTensor& t : list) {
      int64_t left = *ElementCount(t.shape) * 2;
      for (; left > 0; left -= std::min<int64_t>(left, 1 << 20)) {
        ASSERT_TRUE(writer->Append(zeros.data(), std::min<int64_t>(left, 1 << 20)));
      }
    }
    ASSERT_TRUE(writer->Finish());
  }
  for (const int world : {1, 2, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      Shard shard = ShardOf(model, rank, world);
      for (auto& values : shard.values) std::fill(values.begin(), values.end(), 1.0f);  // there before the peak begins
      std::ofstream("/proc/self/clear_refs") << "5";
      const int64_t before = PeakResidentBytes();
      Result<ForeignModel> source = ForeignModel::Open(disk.path(), model);
      ASSERT_TRUE(source) << source.error().message;
      ASSERT_TRUE(source->Read(shard.slices));
      const int64_t more = PeakResidentBytes() - before;
      EXPECT_LE(more, shard.bytes / 10 + largest) << "rank " << rank << " of " << world;
      EXPECT_LE(more, 16 << 20) << "in fact a piece of 4 MiB and the headers";
      EXPECT_EQ(source->bytes_read(), shard.bytes / 2);
    }
  }
}

TEST_F(ForeignModelTest, OneLineForEachBadSource) {
  MakeSource(SmallQwen2(), "BF16");
  ModelDescription model = SmallQwen2();
  EXPECT_EQ(Problem(model), "none");
  model.vocab = 41;
  EXPECT_EQ(
      Problem(model),
      source_ + "/model.safetensors: tensor model.embed_tokens.weight is [40, 16], by config.json it is [41, 16]");
  model.vocab = 40;
  model.qkv_bias = false;
  EXPECT_EQ(Problem(model), source_ +
                                "/model.safetensors: tensor model.layers.0.self_attn.k_proj.bias is a parameter "
                                "that the model of config.json does not have: the two do not belong together");
  model.qkv_bias = true;
  model.qk_norm = true;
  EXPECT_EQ(Problem(model), "tensor model.layers.0.self_attn.q_norm.weight is missing in " + source_);
  EXPECT_EQ(Problem(SmallGpt2()),
            "there is no tensor transformer.wte.weight in the source: it is of another model than config.json");
  const std::string file = source_ + "/model.safetensors";
  Result<ForeignModel> source = ForeignModel::Open(source_, SmallQwen2());
  Shard shard = ShardOf(SmallQwen2(), 0, 1);
  stdfs::resize_file(file, stdfs::file_size(file) - 1);
  const Status read = source->Read(shard.slices);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("tensor lm_head.weight: " + file + ": the file has become shorter"));
  EXPECT_THAT(Problem(SmallQwen2()), HasSubstr(file + ": tensor \""));
  stdfs::remove(file);
  std::ofstream(source_ + "/model.safetensors.index.json")
      << R"({"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors"}})";
  EXPECT_THAT(Problem(SmallQwen2()), HasSubstr("model-00001-of-00002.safetensors"));
}

}  // namespace
}  // namespace trainyard::checkpoint
