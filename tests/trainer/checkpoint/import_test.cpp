#include "trainer/checkpoint/import.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/file_text.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/compare.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/safetensors_file.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

// ---- headers -----------------------------------------------------------------------------------------------

std::string Safetensors(const std::string& json, int64_t data_bytes) {
  const uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + json + std::string(static_cast<size_t>(data_bytes), 'x');
}

std::string HeaderProblem(const std::string& json, int64_t data_bytes) {
  const std::string file = Safetensors(json, data_bytes);
  const Result<SafetensorsHeader> header = ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()));
  return header ? "none" : header.error().message;
}

TEST(SafetensorsHeader, EveryWayToBeWrongIsNamed) {
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "none");
  EXPECT_EQ(HeaderProblem("{}", 0), "none");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7),
            "tensor \"a\": its byte range is not that of its shape, or leaves the file");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9),
            "bytes at its end are of no tensor");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            "tensor \"a\": its byte range is not that of its shape, or leaves the file");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
            "tensor \"a\": its shape is negative or too large");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
            "tensor \"a\": its shape is negative or too large");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8),
            "tensor \"a\": dtype \"Q4\" is not one of safetensors");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                          3),
            "bytes before tensor \"b\" are of none, or of two");
  EXPECT_EQ(HeaderProblem(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          1),
            "its header has \"a\" twice");
  EXPECT_THAT(HeaderProblem(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8),
              HasSubstr("2.5 is not a whole number"));
  EXPECT_THAT(HeaderProblem(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8),
              HasSubstr("is not a whole number of 63 bits"));
  EXPECT_THAT(HeaderProblem(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("key 'dtype' not found"));
  EXPECT_THAT(HeaderProblem(R"({"__metadata__":{"DCP_SHARDING_INFO":"{}"},)"
                            R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                            1),
              HasSubstr("key 'a' not found"));
  EXPECT_EQ(HeaderProblem(R"({"a\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            "the name \"a\\nb\" is not printable ASCII");
  EXPECT_EQ(HeaderProblem("[]", 0), "its header is not a JSON object");
  EXPECT_EQ(HeaderProblem("{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0),
            "its header is nested too deeply to be one of safetensors");
  EXPECT_EQ(ParseSafetensorsHeader("abc", 3).error().message, "it is too short for a safetensors file");
  EXPECT_THAT(ParseSafetensorsHeader(std::string(16, '\xff'), 16).error().message,
              HasSubstr("the length of its header, 18446744073709551615, is impossible"));
}

// ---- import ------------------------------------------------------------------------------------------------

class Import : public testing::Test {
 protected:
  // A Hugging Face directory of our own making; its checkpoint stays in original_.
  void MakeSource(const ModelDescription& model, const HuggingFaceOptions& options = {}) {
    original_ = SaveModel(temp_.path() + "/job", model, 5, 2);
    Result<Reader> reader = Reader::Open(original_);
    ASSERT_TRUE(ExportHuggingFace(*reader, source_, options));
  }
  Result<ImportInfo> Run(const std::string& config = "") {
    ImportOptions options;
    options.source = source_;
    options.root = root_;
    options.config = config;
    options.memory_bytes = 6000;  // several files
    return ImportWeights(options);
  }
  std::string Problem() {
    const Result<ImportInfo> info = Run();
    EXPECT_FALSE(stdfs::exists(root_ + "/step-00000000")) << "nothing is made of a bad source";
    return info ? "none" : info.error().message;
  }
  // Differences between the weights of the original and the imported ones.
  size_t Differences() {
    Result<Reader> a = Reader::Open(original_), b = Reader::Open(root_ + "/step-00000000");
    if (!a || !b) throw std::runtime_error(!a ? a.error().message : b.error().message);
    const Result<Comparison> found = Compare(*a, *b, /*model_only=*/true);
    if (!found) throw std::runtime_error(found.error().message);
    EXPECT_GT(found->tensors, 10);
    return found->differences.size();
  }
  // Writes one safetensors file with the weights of the original under other names; `more` are added, filled with ones.
  void Rename(const std::function<std::string(const std::string&)>& rename,
              const std::vector<SafetensorsTensor>& more = {}) {
    Result<Reader> reader = Reader::Open(original_);
    std::vector<SafetensorsTensor> tensors;
    std::vector<std::vector<char>> data;
    for (const TensorInfo& t : reader->tensors()) {
      if (t.group != "model") continue;
      tensors.push_back({rename(t.name), t.dtype, t.global_shape, {}});
      data.emplace_back(static_cast<size_t>(*ElementCount(t.global_shape) * 4));
      const std::vector<int64_t> zeros(t.global_shape.size(), 0);
      ASSERT_TRUE(reader->Read({{t.name, t.dtype, t.global_shape, zeros, t.global_shape, data.back().data()}}));
    }
    for (const SafetensorsTensor& t : more) {
      tensors.push_back(t);
      data.emplace_back(static_cast<size_t>(*ElementCount(t.shape) * *DtypeBytes(t.dtype)), '\1');
    }
    stdfs::remove(source_ + "/model.safetensors");
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(source_ + "/model.safetensors", tensors, false, PosixFileSystem());
    for (const std::vector<char>& bytes : data) {
      ASSERT_TRUE(writer->Append(bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    ASSERT_TRUE(writer->Finish());
  }
  void SetConfig(const char* key, const nlohmann::json& value) {
    std::ifstream in(source_ + "/config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config[key] = value;
    Write(source_ + "/config.json", config.dump());
  }

  TempDirectory temp_{Storage::kMemory};
  const std::string source_ = temp_.path() + "/source", root_ = temp_.path() + "/imported";
  std::string original_;
};

TEST_F(Import, WhatWasExportedComesBack) {
  for (const ModelDescription& model : {SmallLlama(), SmallGpt2(), SmallMistral(), SmallQwen2(), SmallQwen3()}) {
    MakeSource(model, {"F32", 3000});
    const Result<ImportInfo> info = Run();
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_TRUE(info->model == model);
    EXPECT_EQ(info->ignored, 0);
    EXPECT_EQ(Differences(), 0u);
    EXPECT_TRUE(Verify(info->path)->ok());
    const Result<Reader> reader = Reader::Open(info->path);
    EXPECT_EQ(reader->step(), 0);
    EXPECT_GT(reader->world(), 1) << "in parts, which bounds the memory";
    EXPECT_EQ(reader->train_state()["weightsOnly"], true);
    EXPECT_EQ(reader->train_state()["model"], nlohmann::json(ModelIdentity(model)));
    EXPECT_TRUE(TakeOver(root_, {"a-job", 0, 0})) << "any job may go on from it";
    for (const std::string& directory : {source_, root_, temp_.path() + "/job"}) stdfs::remove_all(directory);
  }
}

TEST_F(Import, Bfloat16BecomesFp32AndLinksAreFollowed) {
  MakeSource(SmallLlama(), {"BF16"});
  const std::string blobs = temp_.path() + "/blobs";
  stdfs::rename(source_, blobs);
  stdfs::create_directory(source_);
  for (const char* name : {"config.json", "model.safetensors"}) {
    stdfs::create_symlink("../blobs/" + std::string(name), source_ + "/" + name);
  }
  ASSERT_TRUE(Run()) << Run().error().message;
  Result<Reader> a = Reader::Open(original_), b = Reader::Open(root_ + "/step-00000000");
  std::vector<float> was(40 * 16), is(40 * 16), rounded(40 * 16);
  std::vector<uint16_t> halves(40 * 16);
  ASSERT_TRUE(a->Read({{"lm_head.weight", "F32", {40, 16}, {0, 0}, {40, 16}, was.data()}}));
  ASSERT_TRUE(b->Read({{"lm_head.weight", "F32", {40, 16}, {0, 0}, {40, 16}, is.data()}}));
  ASSERT_TRUE(ConvertFloats("F32", was.data(), 40 * 16, "BF16", halves.data()));
  ASSERT_TRUE(ConvertFloats("BF16", halves.data(), 40 * 16, "F32", rounded.data()));
  EXPECT_EQ(is, rounded);
  EXPECT_NE(is, was);
}

TEST_F(Import, FromDcpWithOptimizerAndConfigElsewhere) {
  MakeSource(SmallGpt2());
  const std::string config = temp_.path() + "/gpt2.json";
  stdfs::rename(source_ + "/config.json", config);
  stdfs::remove_all(source_);
  ASSERT_TRUE(ExportDcp(original_, source_));
  EXPECT_EQ(Run().error().message,
            source_ + "/config.json does not exist: --config names the config.json of the model");
  const Result<ImportInfo> info = Run(config);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->ignored, 2 * info->tensors) << "both moments";
  EXPECT_EQ(Differences(), 0u);
}

TEST_F(Import, OtherNamesForTheSameThing) {
  MakeSource(SmallGpt2());
  // As the first GPT-2 of the Hub: no prefix, masks as buffers, the tied head once more.
  Rename([](const std::string& name) { return name.substr(std::string("transformer.").size()); },
         {{"h.0.attn.bias", "U8", {1, 1, 32, 32}, {}}, {"lm_head.weight", "F32", {40, 16}, {}}});
  Result<ImportInfo> info = Run();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->ignored, 2);
  EXPECT_EQ(Differences(), 0u);
  stdfs::remove_all(root_);
  // As a state dict {"model": model.state_dict()}.
  Rename([](const std::string& name) { return "model." + name; });
  info = Run();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(Differences(), 0u);
  stdfs::remove_all(root_);
  // An averaged copy beside the model: the one without a prefix is meant. Two with prefixes: nobody can know.
  Rename([](const std::string& name) { return name; }, {{"ema.transformer.wte.weight", "F32", {40, 16}, {}}});
  ASSERT_TRUE(Run());
  EXPECT_EQ(Differences(), 0u);
  stdfs::remove_all(root_);
  Rename([](const std::string& name) { return "a." + name; }, {{"ema.transformer.wte.weight", "F32", {40, 16}, {}}});
  EXPECT_EQ(Problem(), "the source has several models: a.transformer.wte.weight, ema.transformer.wte.weight");
}

TEST_F(Import, AnIndexCannotLeadOutOfItsDirectory) {
  MakeSource(SmallLlama());
  stdfs::rename(source_ + "/model.safetensors", temp_.path() + "/elsewhere.safetensors");
  for (const std::string& file : {std::string("../elsewhere.safetensors"), temp_.path() + "/elsewhere.safetensors",
                                  std::string("sub/x.safetensors"), std::string("..safetensors"),
                                  std::string("model.bin"), std::string(".safetensors")}) {
    const nlohmann::json index = {{"weight_map", {{"lm_head.weight", file}}}};
    Write(source_ + "/model.safetensors.index.json", index.dump());
    EXPECT_EQ(Problem(), source_ + "/model.safetensors.index.json: \"" + file +
                             "\" is not the name of a safetensors file in that directory");
  }
  Write(source_ + "/model.safetensors.index.json", R"({"weight_map":{"lm_head.weight":7}})");
  EXPECT_THAT(Problem(), HasSubstr("7 is not the name of a safetensors file"));
  Write(source_ + "/model.safetensors.index.json", "[]");
  EXPECT_THAT(Problem(), HasSubstr("it has no weight_map"));
}

TEST_F(Import, OneLineForEachBadSource) {
  EXPECT_THAT(Problem(), HasSubstr("config.json does not exist"));
  MakeSource(SmallLlama());
  const std::string file = source_ + "/model.safetensors";
  SetConfig("vocab_size", 41);
  EXPECT_EQ(Problem(), file + ": tensor model.embed_tokens.weight is [40, 16], by config.json it is [41, 16]");
  SetConfig("vocab_size", 40);
  SetConfig("num_hidden_layers", 3);
  EXPECT_EQ(Problem(), "tensor model.layers.2.self_attn.q_proj.weight is missing in " + source_);
  SetConfig("num_hidden_layers", 2);
  SetConfig("rope_scaling", {{"type", "dynamic"}});
  EXPECT_THAT(Problem(), StartsWith(source_ + "/config.json: rope_scaling: "));
  SetConfig("rope_scaling", nullptr);
  SetConfig("num_hidden_layers", 1);
  EXPECT_EQ(Problem(), file +
                           ": tensor model.layers.1.input_layernorm.weight is a parameter that the model of "
                           "config.json does not have: the two do not belong together");
  SetConfig("num_hidden_layers", 2);
  Write(source_ + "/model.safetensors.index.json",
        R"({"weight_map":{"lm_head.weight":"model.safetensors","gone":"model.safetensors"}})");
  EXPECT_THAT(Problem(), HasSubstr("index.json: tensor gone is not in model.safetensors"));
  Write(source_ + "/model.safetensors.index.json",
        R"({"weight_map":{"lm_head.weight":"model.safetensors","gone":"model-2.safetensors"}})");
  EXPECT_EQ(Problem(), source_ +
                           "/model-2.safetensors is not there, but model.safetensors.index.json names it: a part "
                           "of the model is missing");
  stdfs::remove(source_ + "/model.safetensors.index.json");
  stdfs::resize_file(file, stdfs::file_size(file) - 1);
  EXPECT_THAT(Problem(), HasSubstr("/model.safetensors: tensor \""));
  stdfs::resize_file(file, 5);
  EXPECT_EQ(Problem(), file + ": it is too short for a safetensors file");
  Write(file, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 269060552\n");
  EXPECT_EQ(Problem(), file + ": it is a pointer of Git LFS and not the file: fetch it with git lfs pull");
  stdfs::remove(file);
  EXPECT_EQ(Problem(), "there is no *.safetensors file in " + source_);
  Write(source_ + "/pytorch_model.bin", "");
  EXPECT_THAT(Problem(), HasSubstr(": what is there is pickled; save it again as safetensors"));
}

TEST_F(Import, ADirectoryThatIsInUseIsNotTouched) {
  MakeSource(SmallLlama());
  ASSERT_TRUE(TakeOver(root_, {"a-job", 3, 0}));
  EXPECT_EQ(Problem(), root_ + " is not empty (.staging): import into a new directory");
  EXPECT_TRUE(stdfs::exists(root_ + "/.staging/a-job-3"));
}

TEST_F(Import, PartsThatDoNotTileATensorAreNamed) {
  MakeSource(SmallLlama());
  stdfs::rename(source_ + "/config.json", temp_.path() + "/config.json");
  stdfs::remove_all(source_);
  ASSERT_TRUE(ExportDcp(original_, source_));
  stdfs::remove(source_ + "/shard-00001-model-00001-of-00002.safetensors");
  EXPECT_THAT(Run(temp_.path() + "/config.json").error().message,
              testing::AllOf(HasSubstr("tensor "), HasSubstr("rows [0, "), HasSubstr(") are in no file")));
}

}  // namespace
}  // namespace trainyard::checkpoint
