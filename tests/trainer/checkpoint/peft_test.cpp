// Adapters to PEFT's layout and from it.
#include "trainer/checkpoint/peft.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/checkpoint/peft_sample.h"
#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/compare.h"
#include "trainer/checkpoint/import.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PeftTest : public testing::Test {
 protected:
  std::string Problem(const ModelDescription& model = SmallLlama()) {
    const Result<AdapterSource> opened = AdapterSource::Open(directory_, model);
    return opened ? "none" : opened.error().message;
  }
  // What is said about a config with another value of one key.
  std::string With(const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = PeftConfig(adapter_);
    config[key] = value;
    WritePeft(directory_, SmallLlama(), adapter_, config);
    return Problem();
  }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : stdfs::directory_iterator(directory_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempDirectory temp_;
  const std::string directory_ = temp_.path() + "/peft", config_ = directory_ + "/adapter_config.json: ";
  const AdapterDescription adapter_{.rank = 3, .alpha = 6, .dropout = 0.05, .targets = {"q_proj", "v_proj"}};
};

TEST_F(PeftTest, OutAndInAgainIsTheSame) {
  for (const ModelDescription& model : {SmallLlama(), SmallQwen3(), SmallGpt2()}) {
    SCOPED_TRACE(FamilyName(model.family));
    const bool gpt2 = model.family == ModelFamily::kGpt2;
    for (const char* name : {"/job", "/peft", "/base", "/base-job", "/back"}) stdfs::remove_all(temp_.path() + name);
    AdapterState state{.model = model, .adapter = adapter_, .base = {}};
    state.adapter.targets = *ResolveTargets(model, {});
    WriteHuggingFace(temp_.path() + "/base", model, temp_.path() + "/base-job", {.dtype = "BF16"});
    Result<ForeignModel> base = ForeignModel::Open(temp_.path() + "/base", model);
    state.base = *HashBase(*base, model, temp_.path() + "/base");
    Result<Reader> reader = Reader::Open(SaveAdapter(temp_.path() + "/job", state, 7, 2));
    const Result<ExportInfo> info = ExportPeft(*reader, directory_);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_THAT(Entries(), ElementsAre("adapter_config.json", "adapter_model.safetensors"));
    const nlohmann::json config = nlohmann::json::parse(std::ifstream(directory_ + "/adapter_config.json"));
    EXPECT_EQ(config["lora_alpha"].dump(), "6");
    EXPECT_EQ(config["fan_in_fan_out"], gpt2);
    EXPECT_EQ(config["base_model_name_or_path"], temp_.path() + "/base");
    const Result<SafetensorsHeader> header =
        ReadSafetensorsHeader(directory_ + "/adapter_model.safetensors", PosixFileSystem());
    EXPECT_EQ(header->entries[0].name, gpt2 ? "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
                                            : "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    EXPECT_EQ(header->metadata.at("format"), "pt");

    const Result<ImportInfo> back =
        ImportWeights({.source = directory_, .base = temp_.path() + "/base", .root = temp_.path() + "/back"});
    ASSERT_TRUE(back) << back.error().message;
    Result<Reader> again = Reader::Open(back->path);
    EXPECT_TRUE(Compare(*reader, *again, /*model_only=*/true)->same());
    const Result<AdapterState> read = DescribeAdapter(*again);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->adapter, state.adapter);
    EXPECT_EQ(read->base->hash, state.base->hash);
    EXPECT_EQ(again->train_state()["weightsOnly"], true);
    EXPECT_TRUE(stdfs::exists(temp_.path() + "/back/huggingface/config.json"));
    // From the directory of the job its newest checkpoint.
    Result<AdapterSource> source = AdapterSource::Open(temp_.path() + "/job", model);
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ(source->base()->hash, state.base->hash);
  }
}

TEST_F(PeftTest, BFloat16IsRounded) {
  const AdapterState state{.model = SmallLlama(), .adapter = adapter_, .base = {}};
  Result<Reader> reader = Reader::Open(SaveAdapter(temp_.path() + "/job", state, 7, 2));
  ASSERT_TRUE(ExportPeft(*reader, directory_, "BF16"));
  Result<AdapterSource> source = AdapterSource::Open(directory_, SmallLlama());
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(ReadSafetensorsHeader(directory_ + "/adapter_model.safetensors", PosixFileSystem())->entries[0].dtype,
            "BF16");
  EXPECT_EQ(ExportPeft(*reader, directory_).error().code, ErrorCode::kAlreadyExists);
  Result<Reader> whole = Reader::Open(SaveModel(temp_.path() + "/whole", SmallLlama(), 7, 1));
  EXPECT_EQ(ExportPeft(*whole, temp_.path() + "/out").error().message,
            "the checkpoint is of a whole model, and not of an adapter");
  EXPECT_FALSE(stdfs::exists(temp_.path() + "/out"));
  EXPECT_THAT(ExportPeft(*reader, temp_.path() + "/out", "F16").error().message,
              testing::MatchesRegex("tensor model.layers.*: -?[0-9e.+]+ is too large for F16: take --dtype .*"));
  EXPECT_FALSE(stdfs::exists(temp_.path() + "/out"));
}

TEST_F(PeftTest, WhatChangesTheArithmeticIsRefusedByName) {
  WritePeft(directory_, SmallLlama(), adapter_);
  EXPECT_EQ(Problem(), "none");
  const auto refused = [&](const std::string& key, const nlohmann::json& value) {
    EXPECT_THAT(With(key, value), HasSubstr(config_ + key + ": " + value.dump() + " is not what our trainer computes"));
  };
  refused("use_dora", true);
  refused("use_rslora", true);
  refused("modules_to_save", {"lm_head"});
  refused("rank_pattern", {{"q_proj", 4}});
  refused("alpha_pattern", {{"q_proj", 4}});
  refused("peft_type", "LOHA");
  refused("task_type", "SEQ_CLS");
  refused("bias", "all");
  refused("init_lora_weights", "pissa_niter_16");
  refused("trainable_token_indices", {1, 2});
  refused("layers_to_transform", {0});
  refused("layers_pattern", "layers");
  refused("exclude_modules", {"k_proj"});
  EXPECT_EQ(With("invented", 3), config_ +
                                     "invented: is not a key that is known here, and might change what the model "
                                     "computes; remove what does not");
  EXPECT_EQ(With("invented", false), "none") << "what is off changes nothing";
  EXPECT_EQ(With("r", 0), config_ + "r: 0 is not a size");
  EXPECT_EQ(With("r", nullptr), config_ + "r: is missing");
  EXPECT_EQ(With("lora_alpha", "x"), config_ + "lora_alpha: \"x\" is not a positive number");
  EXPECT_EQ(With("lora_dropout", 1), config_ + "lora_dropout: is not a share below 1");
  EXPECT_EQ(With("fan_in_fan_out", "yes"), config_ + "fan_in_fan_out: \"yes\" is not true or false");
  EXPECT_EQ(With("fan_in_fan_out", true), "none") << "PEFT goes by the layer";
  EXPECT_THAT(With("r", 4), HasSubstr("adapter_model.safetensors: tensor base_model.model.model.layers.0.self_attn."
                                      "q_proj.lora_A.weight is [0:3, 0:16], by r and the model it is [0:4, 0:16]"));
}

TEST_F(PeftTest, TargetModulesMeanTheMatricesThatHaveTensors) {
  const std::string key = config_ + "target_modules: ", q = "model.layers.0.self_attn.q_proj";
  const std::vector<nlohmann::json> lists = {
      nullptr, nlohmann::json::array(), {"v_proj", "q_proj"}, {"self_attn.q_proj", "v_proj", "c_attn"}};
  for (const nlohmann::json& good : lists) {
    EXPECT_EQ(With("target_modules", good), "none") << good;
  }
  for (const char* good : {".*_proj", R"(model\.layers\.\d+\.self_attn\.(q|v)_proj)", "(?P<python>.*)"}) {
    EXPECT_EQ(With("target_modules", good), "none") << good;
  }
  EXPECT_EQ(With("target_modules", {"v_proj"}), key + "does not name " + q + ", which has tensors");
  EXPECT_EQ(With("target_modules", {"proj", "v_proj"}), key + "does not name " + q + ", which has tensors");
  EXPECT_EQ(With("target_modules", {"q_proj", "v_proj", "mlp.up_proj"}),
            key + "names model.layers.0.mlp.up_proj, which has no tensors");
  EXPECT_EQ(With("target_modules", "all-linear"), key + "names model.layers.0.self_attn.k_proj, which has no tensors");
  EXPECT_EQ(With("target_modules", "q_proj|v_proj"), key + "does not match " + q + ", which has tensors");
  EXPECT_EQ(With("target_modules", "(.*)*x"), key + "does not match " + q + ", which has tensors");
  for (const char* outside : {"lm_head", "embed_tokens"}) {
    EXPECT_EQ(With("target_modules", {"q_proj", "v_proj", outside}),
              key + "names the head or the embedding, and our trainer adapts matrices of the blocks");
  }
  EXPECT_EQ(With("target_modules", 3), key + "is neither a list of names nor a text");
  EXPECT_EQ(With("target_modules", {3}), key + "is neither a list of names nor a text");
}

TEST_F(PeftTest, OneLineForFilesThatAreNotTheAdapter) {
  const std::string weights = directory_ + "/adapter_model.safetensors";
  WritePeft(directory_, SmallLlama(), adapter_);
  EXPECT_EQ(Problem(SmallGpt2()), weights +
                                      ": the adapter is of another model: the model has no matrix q_proj in its "
                                      "blocks: it has c_attn, c_proj, c_fc");
  ModelDescription deep = SmallLlama(), shallow = SmallLlama(), wide = SmallLlama();
  deep.layers = 3, shallow.layers = 1, wide.hidden = 32;
  EXPECT_EQ(Problem(deep),
            weights + ": tensor base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight is missing");
  EXPECT_EQ(Problem(shallow), weights +
                                  ": tensor base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight is of "
                                  "no matrix of the model");
  EXPECT_THAT(Problem(wide), HasSubstr("is [0:3, 0:16], by r and the model it is [0:3, 0:32]"));
  stdfs::resize_file(weights, stdfs::file_size(weights) - 1);
  EXPECT_THAT(Problem(), HasSubstr(weights + ": "));
  stdfs::rename(weights, directory_ + "/adapter_model.bin");
  EXPECT_THAT(Problem(), HasSubstr("adapter_model.bin is pickled: save the adapter again as safetensors"));
  std::ofstream(directory_ + "/adapter_config.json") << "{";
  EXPECT_EQ(Problem(), directory_ + "/adapter_config.json is not a JSON object");
  stdfs::remove_all(directory_);
  EXPECT_EQ(Problem(),
            "there is no adapter in " + directory_ + ": neither adapter_config.json nor a checkpoint of ours");
}

TEST_F(PeftTest, AnImportSaysWhatItNeeds) {
  WritePeft(directory_, SmallLlama(), adapter_);
  const std::string root = temp_.path() + "/root", base = temp_.path() + "/base";
  EXPECT_EQ(ImportWeights({.source = directory_, .root = root}).error().message,
            directory_ + " is an adapter: --base names the directory of its model");
  WriteHuggingFace(base, SmallLlama(), temp_.path() + "/base-job");
  EXPECT_EQ(ImportWeights({.source = base, .base = base, .root = root}).error().message,
            "--base is of an adapter, and " + base + " has no adapter_config.json");
  EXPECT_FALSE(stdfs::exists(root));
  const Result<ImportInfo> info = ImportWeights({.source = directory_, .config = base + "/config.json", .root = root});
  ASSERT_TRUE(info) << info.error().message;
  Result<Reader> reader = Reader::Open(info->path);
  EXPECT_FALSE(DescribeAdapter(*reader)->base) << "nobody has looked at it";
}

}  // namespace
}  // namespace trainyard::checkpoint
