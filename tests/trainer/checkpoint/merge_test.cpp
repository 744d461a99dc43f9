// A model and its adapter as one.
#include "trainer/checkpoint/merge.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/checkpoint/peft_sample.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/foreign_model.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

TEST(AddLowRank, IsTheProductWhateverTheShape) {
  std::mt19937 random(20261130);
  std::uniform_real_distribution<float> number(-1, 1);
  for (const auto& [rows, rank, columns] : {std::tuple{3, 1, 1}, {7, 5, 1030}, {1, 16, 2048}, {2, 64, 1023}}) {
    std::vector<float> left(rows * rank), right(rank * columns), out(rows * columns);
    for (auto* values : {&left, &right, &out}) {
      for (float& x : *values) x = number(random);
    }
    std::vector<double> wanted(out.begin(), out.end());
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        for (int k = 0; k < rank; ++k) wanted[i * columns + j] += 0.5 * left[i * rank + k] * right[k * columns + j];
      }
    }
    std::vector<float> by_row = out;
    AddLowRank(left.data(), right.data(), rows, rank, columns, 0.5F, out.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], wanted[i], 1e-5) << i;
    for (int i = 0; i < rows; ++i) {
      AddLowRank(left.data() + i * rank, right.data(), 1, rank, columns, 0.5F, by_row.data() + i * columns);
    }
    EXPECT_EQ(out, by_row) << "the same bits in pieces";
  }
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class MergeTest : public testing::Test {
 protected:
  void MakeBase(const ModelDescription& model, const HuggingFaceOptions& options) {
    stdfs::remove_all(base_);
    stdfs::remove_all(temp_.path() + "/job");
    WriteHuggingFace(base_, model, temp_.path() + "/job", options);
    std::ofstream(base_ + "/tokenizer.json") << "{\"a\": 1}";
    std::ofstream(base_ + "/generation_config.json") << "{}";
    std::ofstream(base_ + "/training_args.bin") << "not of the model";
  }
  Result<MergeInfo> Run() {
    stdfs::remove_all(out_);
    return MergeAdapter({base_, adapter_directory_, out_});
  }
  std::string Problem() {
    const Result<MergeInfo> info = Run();
    EXPECT_FALSE(stdfs::exists(out_)) << "nothing stays of what failed";
    return info ? "none" : info.error().message;
  }
  static std::vector<float> Values(ForeignModel& model, const TensorInfo& tensor) {
    std::vector<float> values(static_cast<size_t>(*ElementCount(tensor.global_shape)));
    const std::vector<int64_t> origin(tensor.global_shape.size(), 0);
    EXPECT_TRUE(model.Read({{tensor.name, "F32", tensor.global_shape, origin, tensor.global_shape, values.data()}}));
    return values;
  }
  // What the matrix becomes, element by element in double.
  static void Adapt(const BlockMatrix& m, const AdapterDescription& adapter, const std::string& dtype,
                    std::vector<float>& values) {
    const std::vector<float> a = PeftTensor({m.a(), "model", "F32", {adapter.rank, m.in}});
    const std::vector<float> b = PeftTensor({m.b(), "model", "F32", {m.out, adapter.rank}});
    for (int64_t o = 0; o < m.out; ++o) {
      for (int64_t i = 0; i < m.in; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < adapter.rank; ++k) {
          sum +=
              static_cast<double>(b[static_cast<size_t>(o * adapter.rank + k)]) * a[static_cast<size_t>(k * m.in + i)];
        }
        float& x = values[static_cast<size_t>(m.transposed ? i * m.out + o : o * m.in + i)];
        x = static_cast<float>(x + adapter.alpha / static_cast<double>(adapter.rank) * sum);
        std::vector<char> rounded(8);
        ASSERT_TRUE(ConvertFloats("F32", &x, 1, dtype, rounded.data()));
        ASSERT_TRUE(ConvertFloats(dtype, rounded.data(), 1, "F32", &x));
      }
    }
  }

  TempDirectory temp_;
  const std::string base_ = temp_.path() + "/base", adapter_directory_ = temp_.path() + "/adapter",
                    out_ = temp_.path() + "/merged";
  AdapterDescription adapter_{.rank = 4, .alpha = 8, .dropout = 0, .targets = {}};
};

TEST_F(MergeTest, EveryMatrixIsWhatItShouldBeAndAllElseIsTheSame) {
  for (const ModelDescription& model : {SmallLlama(), SmallQwen2(), SmallGpt2()}) {
    for (const std::string dtype : {"F32", "BF16"}) {
      SCOPED_TRACE(FamilyName(model.family) + " " + dtype);
      MakeBase(model, {.dtype = dtype, .shard_bytes = dtype == "BF16" ? 4000 : 0});
      adapter_.targets = model.family == ModelFamily::kGpt2 ? std::vector<std::string>{"c_attn", "c_proj"}
                                                            : std::vector<std::string>{"down_proj", "k_proj"};
      // Sums are whole numbers that fp32 holds, and large enough to be seen beside weights of up to 2^23 in 8 bits.
      adapter_.alpha = dtype == "F32" ? 8 : 4 * 65536;
      WritePeft(adapter_directory_, model, adapter_);
      const Result<MergeInfo> info = Run();
      ASSERT_TRUE(info) << info.error().message;
      EXPECT_FALSE(info->base_known);
      Result<ForeignModel> before = ForeignModel::Open(base_, model), after = ForeignModel::Open(out_, model);
      ASSERT_TRUE(after) << after.error().message;
      std::map<std::string, BlockMatrix> adapted;
      for (const BlockMatrix& m : AdaptedMatrices(model, adapter_)) adapted[m.name + ".weight"] = m;
      EXPECT_EQ(info->matrices, static_cast<int64_t>(adapted.size()));
      int64_t changed = 0;
      for (const TensorInfo& tensor : TensorsOf(model)) {
        std::vector<float> wanted = Values(*before, tensor);
        const std::vector<float> was = wanted;
        if (adapted.contains(tensor.name)) Adapt(adapted[tensor.name], adapter_, dtype, wanted);
        EXPECT_EQ(Values(*after, tensor), wanted) << tensor.name;
        changed += was != wanted ? 1 : 0;
      }
      EXPECT_EQ(changed, info->matrices) << "a test of nothing";
      for (const auto& entry : stdfs::directory_iterator(base_)) {
        const std::string name = entry.path().filename();
        if (name == "training_args.bin") {
          EXPECT_FALSE(stdfs::exists(out_ + "/" + name));
        } else if (name.ends_with(".safetensors")) {
          EXPECT_EQ(*ReadHeaderBytes(base_ + "/" + name, PosixFileSystem()),
                    *ReadHeaderBytes(out_ + "/" + name, PosixFileSystem()));
        } else {
          EXPECT_EQ(Slurp(base_ + "/" + name), Slurp(out_ + "/" + name)) << name;
        }
      }
    }
  }
}

TEST_F(MergeTest, ABaseThatIsAnotherLeavesNothing) {
  MakeBase(SmallLlama(), {.dtype = "BF16"});
  Result<ForeignModel> base = ForeignModel::Open(base_, SmallLlama());
  adapter_.targets = {"q_proj"};
  const AdapterState state{.model = SmallLlama(), .adapter = adapter_, .base = *HashBase(*base, SmallLlama(), base_)};
  SaveAdapter(adapter_directory_, state, 3, 2);
  const Result<MergeInfo> info = Run();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_TRUE(info->base_known);
  EXPECT_EQ(info->adapter_path, adapter_directory_ + "/step-00000003");
  EXPECT_EQ(MergeAdapter({base_, adapter_directory_, out_}).error().code, ErrorCode::kAlreadyExists);
  // One bit of a norm, which no adapter touches.
  std::fstream file(base_ + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  EXPECT_THAT(Problem(), AllOf(HasSubstr("the adapter belongs to another base: "), HasSubstr(", in " + base_)));
  stdfs::resize_file(base_ + "/model.safetensors", stdfs::file_size(base_ + "/model.safetensors") - 2);
  EXPECT_THAT(Problem(), HasSubstr(base_ + "/model.safetensors: "));
}

TEST_F(MergeTest, OneLineForWhatDoesNotFit) {
  MakeBase(SmallLlama(), {.dtype = "BF16"});
  adapter_.targets = {"q_proj"};
  WritePeft(adapter_directory_, SmallQwen3(), adapter_);
  EXPECT_THAT(Problem(), HasSubstr("by r and the model it is"));
  const AdapterState state{.model = SmallQwen2(), .adapter = adapter_, .base = {}};
  stdfs::remove_all(adapter_directory_);
  SaveAdapter(adapter_directory_, state, 3, 2);
  EXPECT_THAT(Problem(), HasSubstr(": the adapter is of another model: "));
  stdfs::remove_all(adapter_directory_);
  SaveModel(adapter_directory_, SmallLlama(), 3, 2);
  EXPECT_THAT(Problem(), HasSubstr("step-00000003: the checkpoint is of a whole model, and not of an adapter"));
  stdfs::remove_all(base_);
  EXPECT_EQ(Problem(), base_ + "/config.json does not exist");
}

TEST_F(MergeTest, WhatIsNotFiniteIsRefused) {
  const ModelDescription model = SmallLlama();
  // Zeros in F16, but an infinity of the base's own as the first number.
  stdfs::create_directories(base_);
  std::ofstream(base_ + "/config.json") << ConfigJson(model, "F16").dump();
  std::vector<SafetensorsTensor> tensors;
  for (const TensorInfo& tensor : TensorsOf(model)) tensors.push_back({tensor.name, "F16", tensor.global_shape, {}});
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::Create(base_ + "/model.safetensors", tensors, /*sharded=*/false, PosixFileSystem());
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<uint16_t> zeros(static_cast<size_t>(*ElementCount(tensors[i].shape)));
    if (tensors[i].name == "model.layers.0.self_attn.q_proj.weight") zeros[0] = 0x7c00;
    ASSERT_TRUE(writer->Append(zeros.data(), static_cast<int64_t>(zeros.size() * sizeof(zeros[0]))));
  }
  ASSERT_TRUE(writer->Finish());
  adapter_.targets = {"q_proj"};
  WritePeft(adapter_directory_, model, adapter_);
  const Result<MergeInfo> fits = Run();
  ASSERT_TRUE(fits) << fits.error().message;
  adapter_.alpha = 1e6;
  WritePeft(adapter_directory_, model, adapter_);
  EXPECT_EQ(Problem(),
            "tensor model.layers.0.self_attn.q_proj.weight: with the adapter a number is too large for F16: export the "
            "base with --dtype bfloat16 or float32 first");
  std::fstream file(adapter_directory_ + "/adapter_model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.write("\0\0\xc0\x7f", 4);
  file.close();
  adapter_.alpha = 1;
  std::ofstream(adapter_directory_ + "/adapter_config.json") << PeftConfig(adapter_).dump();
  EXPECT_EQ(Problem(), adapter_directory_ +
                           ": tensor model.layers.1.self_attn.q_proj.lora_B.weight holds numbers that are not finite: "
                           "take another checkpoint");
}

TEST_F(MergeTest, TheResultLiesOutsideOfTheBase) {
  MakeBase(SmallLlama(), {.dtype = "BF16"});
  adapter_.targets = {"q_proj"};
  WritePeft(adapter_directory_, SmallLlama(), adapter_);
  stdfs::create_directory_symlink(base_, temp_.path() + "/link");
  for (const std::string& inside : {base_, base_ + "/", base_ + "/merged", temp_.path() + "/link/a/b"}) {
    EXPECT_EQ(MergeAdapter({base_, adapter_directory_, inside}).error().message,
              inside + " lies in the base " + base_ + ": merge into a directory outside of it");
  }
  EXPECT_FALSE(stdfs::exists(base_ + "/merged") || stdfs::exists(base_ + "/a"));
  EXPECT_TRUE(MergeAdapter({base_, adapter_directory_, base_ + "-merged"}));
  EXPECT_THAT(MergeAdapter({base_, adapter_directory_, temp_.path()}).error().message,
              HasSubstr("): merge into a new directory"));
}

}  // namespace
}  // namespace trainyard::checkpoint
