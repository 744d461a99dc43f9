// What an imported model carries along with its checkpoints, and that it comes out as it came in, byte for byte.
#include <cstring>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/file_text.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/import.h"
#include "trainer/checkpoint/remove.h"
#include "trainer/checkpoint/source_files.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::string> Files(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : stdfs::directory_iterator(directory)) out[entry.path().filename()] = Text(entry.path());
  return out;
}

class CarriedFilesTest : public testing::Test {
 protected:
  // A directory as another program writes it: the header in another order of keys, with spaces, in another dtype.
  void MakeSource(const ModelDescription& model, const std::string& dtype, int64_t shard_bytes) {
    Result<Reader> reader = Reader::Open(SaveModel(temp_.path() + "/job", model, 5, 2, dtype == "F16" ? kFitsF16 : 1));
    ASSERT_TRUE(reader);
    HuggingFaceOptions options;
    options.dtype = dtype;
    options.shard_bytes = shard_bytes;
    const Result<ExportInfo> made = ExportHuggingFace(*reader, source_, options);
    ASSERT_TRUE(made) << made.error().message;
    for (const auto& [name, text] : Files(source_)) {
      if (name.ends_with(".safetensors")) Write(source_ + "/" + name, WithOtherHeader(text));
    }
    Write(source_ + "/config.json", "{ " + Text(source_ + "/config.json").substr(1));
    for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "merges.txt"}) {
      Write(source_ + "/" + name, std::string("{\"of\": \"") + name + "\"}\n");
    }
  }
  static std::string WithOtherHeader(const std::string& file) {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));  // keys sorted
    const std::string text = "  " + header.dump(3) + "\n ";
    length = text.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    uint64_t old = 0;
    std::memcpy(&old, file.data(), 8);
    return out + text + file.substr(8 + old);
  }
  Result<ImportInfo> Import() {
    ImportOptions options;
    options.source = source_;
    options.root = root_;
    options.memory_bytes = 6000;
    return ImportWeights(options);
  }
  Result<ExportInfo> Export(HuggingFaceOptions options = {}) {
    Result<Reader> reader = Reader::Open(root_ + "/step-00000000");
    if (!reader) return Fail(reader.error());
    options.carried_root = root_;
    return ExportHuggingFace(*reader, out_, options);
  }
  void Clear() {
    for (const std::string& d : {source_, root_, out_, temp_.path() + "/job"}) stdfs::remove_all(d);
  }

  TempDirectory temp_{Storage::kMemory};
  const std::string source_ = temp_.path() + "/source", root_ = temp_.path() + "/imported",
                    out_ = temp_.path() + "/out";
};

TEST_F(CarriedFilesTest, AModelComesOutAsItCameIn) {
  for (const ModelDescription& model : {SmallLlama(), SmallMistral(), SmallQwen2(), SmallQwen3(), SmallGpt2()}) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
      for (const int64_t shard_bytes : {int64_t{0}, int64_t{1500}}) {
        MakeSource(model, dtype, shard_bytes);
        const Result<ImportInfo> imported = Import();
        ASSERT_TRUE(imported) << imported.error().message;
        const Result<ExportInfo> exported = Export();
        ASSERT_TRUE(exported) << exported.error().message;
        EXPECT_EQ(exported->files.back(), "config.json");
        const auto was = Files(source_), is = Files(out_);
        ASSERT_EQ(was.size(), is.size());
        for (const auto& [name, text] : was)
          EXPECT_TRUE(is.at(name) == text) << FamilyName(model.family) << " " << name;
        Clear();
      }
    }
  }
}

TEST_F(CarriedFilesTest, AnotherDtypeOrSizeOfFilesIsOurs) {
  MakeSource(SmallQwen2(), "BF16", 0);
  ASSERT_TRUE(Import());
  HuggingFaceOptions smaller;
  smaller.shard_bytes = 1500;
  ASSERT_TRUE(Export(smaller));
  EXPECT_TRUE(stdfs::exists(out_ + "/model.safetensors.index.json"));
  Result<ForeignTensors> tensors = ForeignTensors::Open(out_, PosixFileSystem());
  ASSERT_TRUE(tensors);
  for (const auto& [name, tensor] : tensors->all()) EXPECT_EQ(tensor.dtype, "BF16") << name << " as it came";
  EXPECT_EQ(Text(out_ + "/config.json"), Text(source_ + "/config.json"));
  stdfs::remove_all(out_);
  HuggingFaceOptions other;
  other.dtype = "F32";
  ASSERT_TRUE(Export(other));
  tensors = ForeignTensors::Open(out_, PosixFileSystem());
  ASSERT_TRUE(tensors);
  for (const auto& [name, tensor] : tensors->all()) EXPECT_EQ(tensor.dtype, "F32") << name;
  EXPECT_EQ(nlohmann::json::parse(Text(out_ + "/config.json"))["torch_dtype"], "float32");
  EXPECT_EQ(Text(out_ + "/tokenizer.json"), Text(source_ + "/tokenizer.json"));
}

// As the first GPT-2 of the Hub: no prefix, masks as buffers, the tied head once more.
TEST_F(CarriedFilesTest, WhatIsNoParameterStaysBehindAndATiedHeadComesTwice) {
  MakeSource(SmallGpt2(), "F32", 0);
  const Result<ForeignTensors> tensors = ForeignTensors::Open(source_, PosixFileSystem());
  ASSERT_TRUE(tensors);
  std::vector<SafetensorsTensor> list;
  std::vector<std::vector<char>> data;
  const auto add = [&](const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                       std::vector<char> bytes) {
    list.push_back({name, dtype, shape, {}});
    data.push_back(std::move(bytes));
  };
  for (const auto& [name, tensor] : tensors->all()) {
    std::vector<char> bytes;
    ASSERT_TRUE(tensors->Read(tensor, bytes));
    if (name == "transformer.wte.weight") add("lm_head.weight", tensor.dtype, tensor.shape, bytes);
    add(name.substr(std::string("transformer.").size()), tensor.dtype, tensor.shape, bytes);
  }
  const auto write = [&] {
    stdfs::remove(source_ + "/model.safetensors");
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(source_ + "/model.safetensors", list, false, PosixFileSystem());
    for (const std::vector<char>& bytes : data) {
      ASSERT_TRUE(writer->Append(bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    ASSERT_TRUE(writer->Finish());
  };
  write();
  ASSERT_TRUE(Import());
  ASSERT_TRUE(Export());
  EXPECT_TRUE(Text(out_ + "/model.safetensors") == Text(source_ + "/model.safetensors")) << "the head twice";
  stdfs::remove_all(out_);
  stdfs::remove_all(root_);
  add("h.0.attn.bias", "U8", {1, 1, 2, 2}, {1, 0, 1, 1});
  write();
  ASSERT_TRUE(Import());
  ASSERT_TRUE(Export());
  const Result<ForeignTensors> found = ForeignTensors::Open(out_, PosixFileSystem());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->all().size(), list.size() - 1);
  EXPECT_FALSE(found->all().contains("h.0.attn.bias"));
  EXPECT_TRUE(found->all().contains("wte.weight"));
}

TEST_F(CarriedFilesTest, OtherCheckpointsTakeThemOverOnce) {
  MakeSource(SmallLlama(), "BF16", 0);
  ASSERT_TRUE(Import());
  const std::string job = temp_.path() + "/other";
  const Fence fence{"a-job", 1, 0};
  ASSERT_TRUE(TakeOver(job, fence));
  ASSERT_TRUE(CopySourceFiles(root_, job, fence, PosixFileSystem()));
  EXPECT_EQ(Files(job + "/huggingface"), Files(root_ + "/huggingface"));
  Write(root_ + "/huggingface/tokenizer.json", "another");
  ASSERT_TRUE(CopySourceFiles(root_, job, fence, PosixFileSystem()));
  EXPECT_EQ(Text(job + "/huggingface/tokenizer.json"), Text(source_ + "/tokenizer.json")) << "what is there stays";
  ASSERT_TRUE(CopySourceFiles(temp_.path() + "/none", job, fence, PosixFileSystem()));
  // Its checkpoints are deleted with it.
  const Result<Removal> removal = RemoveAll(job, "a-job");
  ASSERT_TRUE(removal) << removal.error().message;
  EXPECT_THAT(removal->removed, ElementsAre("huggingface"));
  EXPECT_FALSE(stdfs::exists(job));
}

TEST_F(CarriedFilesTest, CheckpointsOfOthersUnderThatNameStay) {
  const std::string job = temp_.path() + "/outer";
  ASSERT_TRUE(TakeOver(job, {"a-job", 1, 0}));
  ASSERT_TRUE(TakeOver(job + "/huggingface", {"another", 1, 0}));
  const Result<Removal> removal = RemoveAll(job, "a-job");
  ASSERT_TRUE(removal) << removal.error().message;
  EXPECT_THAT(removal->left, ElementsAre("huggingface"));
  EXPECT_EQ(*OwnerJob(job + "/huggingface"), "another");
}

TEST_F(CarriedFilesTest, AnOlderOwnerPlacesNothing) {
  MakeSource(SmallLlama(), "BF16", 0);
  ASSERT_TRUE(Import());
  const std::string job = temp_.path() + "/other";
  ASSERT_TRUE(TakeOver(job, {"a-job", 1, 0}));
  ASSERT_TRUE(TakeOver(job, {"a-job", 2, 0}));
  const Status placed = CopySourceFiles(root_, job, {"a-job", 1, 0}, PosixFileSystem());
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().message, HasSubstr("a newer attempt took it over"));
  EXPECT_FALSE(stdfs::exists(job + "/huggingface"));
}

TEST_F(CarriedFilesTest, FilesOfAnotherModelAreNamed) {
  MakeSource(SmallLlama(), "F32", 0);
  ASSERT_TRUE(Import());
  ModelDescription other = SmallLlama();
  other.rope_theta = 5e5;
  Write(root_ + "/huggingface/config.json", ConfigJson(other, "F32").dump());
  EXPECT_EQ(Export().error().message,
            root_ +
                "/huggingface/config.json is of another model than the checkpoint: ropeTheta is 500000.0 there and "
                "10000.0 in the checkpoint; remove it to export without");
  EXPECT_FALSE(stdfs::exists(out_));
  Write(root_ + "/huggingface/model.safetensors.header", "xx");
  Write(root_ + "/huggingface/config.json", ConfigJson(SmallLlama(), "F32").dump());
  EXPECT_THAT(Export().error().message, HasSubstr("/huggingface/model.safetensors.header: it is too short"));
}

}  // namespace
}  // namespace trainyard::checkpoint
