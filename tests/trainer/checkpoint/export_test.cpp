#include "trainer/checkpoint/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/file_text.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/foreign_tensors.h"

namespace trainyard::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Lines "name rows columns" of what transformers saves itself; see tests/python/transformers_names.py.
std::vector<std::string> TransformersNames(const std::string& file) {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/python/transformers_names/" + file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Lines(const ModelDescription& model) {
  std::vector<std::string> lines;
  for (const TensorInfo& tensor : TensorsOf(model)) {
    std::string line = tensor.name;
    for (int64_t n : tensor.global_shape) line += " " + std::to_string(n);
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(HuggingFace, NamesAndShapesAreThoseThatTransformersSaves) {
  ModelDescription llama = SmallLlama(), gpt2 = SmallGpt2();
  EXPECT_EQ(Lines(llama), TransformersNames("llama.txt"));
  EXPECT_EQ(Lines(gpt2), TransformersNames("gpt2_tied.txt"));
  llama.tied = true;
  gpt2.tied = false;
  EXPECT_EQ(Lines(llama), TransformersNames("llama_tied.txt"));
  EXPECT_EQ(Lines(gpt2), TransformersNames("gpt2.txt"));
  for (const bool tied : {false, true}) {
    const std::string file = tied ? "_tied.txt" : ".txt";
    for (ModelDescription model : {SmallMistral(), SmallQwen2(), SmallQwen3()}) {
      model.tied = tied;
      model.qkv_bias = model.qkv_bias || (tied && model.qk_norm);
      model.output_bias = tied && model.qk_norm;
      std::string name = FamilyName(model.family);
      name[0] = static_cast<char>(name[0] - 'A' + 'a');
      EXPECT_EQ(Lines(model), TransformersNames(name + file)) << name;
    }
  }
}

TEST(HuggingFace, ConfigSaysWhatItWasMadeFrom) {
  ModelDescription biased = SmallLlama(), linear = SmallLlama(), llama3 = SmallLlama(), yarn = SmallQwen3();
  biased.qkv_bias = biased.output_bias = true;
  linear.rope = {.type = RopeType::kLinear, .factor = 4};
  llama3.rope = {.type = RopeType::kLlama3,
                 .factor = 32,
                 .original_max_positions = 8192,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4};
  yarn.rope = {.type = RopeType::kYarn,
               .factor = 4,
               .original_max_positions = 32,
               .beta_slow = 2,
               .truncate = false,
               .attention_factor = 1.25};
  yarn.window = 8, yarn.windowed_layers = {1};
  for (ModelDescription model :
       {SmallLlama(), SmallGpt2(), SmallMistral(), SmallQwen2(), SmallQwen3(), biased, linear, llama3, yarn}) {
    model.norm_epsilon = 1e-6;
    if (model.family != ModelFamily::kGpt2) model.rope_theta = 500000;
    const Result<ModelDescription> back = ParseConfigJson(nlohmann::json(ConfigJson(model, "BF16")));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(*back == model);
    EXPECT_EQ(ConfigJson(model, "BF16")["torch_dtype"], "bfloat16");
  }
}

TEST(HuggingFace, WhatOurTrainerDoesNotComputeIsRefusedByItsKey) {
  const auto problem = [](const ModelDescription& model, const char* key, const nlohmann::json& value) {
    nlohmann::json config = ConfigJson(model, "F32");
    config[key] = value;
    const Result<ModelDescription> parsed = ParseConfigJson(config);
    return parsed ? "none" : parsed.error().message;
  };
  const ModelDescription llama = SmallLlama(), gpt2 = SmallGpt2();
  EXPECT_EQ(problem(llama, "rope_scaling", {{"rope_type", "llama3"}}), "config.json: rope_scaling: factor: is missing");
  EXPECT_EQ(
      problem(llama, "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
      "config.json: rope_scaling: rope_type: \"dynamic\" is not what our trainer computes (default, linear, llama3, "
      "yarn)");
  EXPECT_EQ(
      problem(llama, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"power", 1}}),
      "config.json: rope_scaling: power: is not a key that is known here, and might change what the model computes; "
      "remove what does not");
  EXPECT_EQ(problem(llama, "rope_scaling", {{"type", "linear"}, {"factor", -2.0}}),
            "config.json: rope_scaling: factor: -2.0 is not a positive number");
  EXPECT_EQ(problem(llama, "rope_scaling", nullptr), "none");
  EXPECT_THAT(problem(llama, "rope_parameters", {{"rope_type", "longrope"}}),
              HasSubstr("rope_parameters: rope_type: "));
  EXPECT_EQ(problem(llama, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}), "none");
  EXPECT_EQ(problem(llama, "partial_rotary_factor", 0.5),
            "config.json: partial_rotary_factor: 0.5 is not what our trainer computes (1.0)");
  EXPECT_EQ(problem(llama, "soft_cap", 30.0),
            "config.json: soft_cap: is not a key that is known here, and might change what the model computes; remove "
            "what does not");
  EXPECT_THAT(problem(llama, "quantization_config", {{"bits", 4}}), HasSubstr("quantization_config: is not a key"));
  EXPECT_EQ(problem(llama, "attention_dropout", 0.1), "none");
  EXPECT_EQ(problem(llama, "attention_bias", true), "none");
  EXPECT_THAT(problem(llama, "mlp_bias", true), HasSubstr("mlp_bias: true is not what our trainer"));
  EXPECT_THAT(problem(llama, "sliding_window", 16), HasSubstr("sliding_window: 16 is not what our trainer"));
  EXPECT_THAT(problem(SmallQwen2(), "layer_types", {"full_attention"}), HasSubstr("layer_types: does not name each"));
  EXPECT_THAT(problem(SmallQwen2(), "layer_types", {"full_attention", "chunked_attention"}),
              HasSubstr("layer_types: \"chunked_attention\" is not what"));
  EXPECT_THAT(problem(SmallQwen2(), "use_mrope", true), HasSubstr("use_mrope: true is not what our trainer"));
  EXPECT_THAT(problem(llama, "hidden_act", "gelu"), HasSubstr("hidden_act: \"gelu\""));
  EXPECT_EQ(problem(llama, "head_dim", 8), "none");
  EXPECT_THAT(problem(llama, "head_dim", 7), HasSubstr("head_dim: a head of 7 has no pairs"));
  EXPECT_THAT(problem(llama, "num_key_value_heads", 3), HasSubstr("num_key_value_heads: it does not divide"));
  for (const int64_t heads : {3, 3371542}) {  // fewer and more than the hidden size has room for
    nlohmann::json bad = nlohmann::json(ConfigJson(llama, "F32"));
    bad.erase("head_dim");
    bad["num_attention_heads"] = bad["num_key_value_heads"] = heads;
    EXPECT_THAT(ParseConfigJson(bad).error().message, HasSubstr("num_attention_heads: it does not divide hidden_size"));
  }
  EXPECT_THAT(problem(llama, "num_hidden_layers", 1e9), HasSubstr("num_hidden_layers: 1000000000.0 is not a size"));
  EXPECT_THAT(problem(llama, "num_hidden_layers", 20000), HasSubstr("num_hidden_layers: 20000 is not a size"));
  EXPECT_THAT(problem(llama, "hidden_size", -4), HasSubstr("hidden_size: -4 is not a size"));
  EXPECT_THAT(problem(llama, "vocab_size", nullptr), HasSubstr("vocab_size: is missing"));
  EXPECT_EQ(
      problem(llama, "architectures", {"GemmaForCausalLM"}),
      "config.json: architectures: only LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
      "GPT2LMHeadModel can be trained here, one of them at a time");
  EXPECT_THAT(problem(gpt2, "activation_function", "relu"), HasSubstr("activation_function: \"relu\""));
  EXPECT_THAT(problem(gpt2, "scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(ParseConfigJson(nlohmann::json::array()).error().message, HasSubstr("not a JSON object"));
}

TEST(HuggingFace, BothSpellingsOfRotaryPositionsMeanTheSame) {
  nlohmann::json older = ConfigJson(SmallQwen2(), "F32"), newer = older;
  older["rope_theta"] = 5e5;
  older["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 5e5}};
  const Result<ModelDescription> a = ParseConfigJson(older), b = ParseConfigJson(newer);
  ASSERT_TRUE(a && b) << (a ? b : a).error().message;
  EXPECT_TRUE(*a == *b);
  EXPECT_EQ(a->rope_theta, 5e5);
  EXPECT_EQ(a->rope.original_max_positions, 32) << "max_position_embeddings where it is not said";
  EXPECT_DOUBLE_EQ(a->rope.attention_factor, 0.1 * std::log(4.0) + 1);
}

TEST(HuggingFace, WhatIsLeftOutHasTheDefaultOfItsFamily) {
  const auto parsed = [](const ModelDescription& model, const std::vector<const char*>& keys) {
    nlohmann::json config = ConfigJson(model, "F32");
    for (const char* key : keys) config.erase(key);
    const Result<ModelDescription> m = ParseConfigJson(config);
    if (!m) throw std::runtime_error(m.error().message);
    return *m;
  };
  EXPECT_EQ(parsed(SmallMistral(), {"sliding_window"}).window, 4096) << "the first Mistral's; null means none";
  EXPECT_EQ(parsed(SmallMistral(), {}).window, 0);
  EXPECT_EQ(parsed(SmallQwen3(), {"head_dim"}).head_dim, 128);
  EXPECT_EQ(parsed(SmallLlama(), {"head_dim"}).head_dim, 0);
  EXPECT_EQ(parsed(SmallLlama(), {"num_key_value_heads"}).kv_heads, 4);
  EXPECT_THROW(parsed(SmallQwen2(), {"num_key_value_heads"}), std::runtime_error) << "transformers would take 32";
  nlohmann::json upper = ConfigJson(SmallQwen2(), "F32");
  upper.erase("layer_types");
  upper["use_sliding_window"] = true, upper["sliding_window"] = 8, upper["max_window_layers"] = 1;
  EXPECT_THAT(ParseConfigJson(upper)->windowed_layers, ElementsAre(1));
  upper.erase("max_window_layers");
  EXPECT_EQ(ParseConfigJson(upper)->window, 0) << "from layer 28 on, which it does not have";
}

TEST(HuggingFace, TheIdentityOfACheckpointIsThatOfItsModel) {
  const nlohmann::json llama = ModelIdentity(SmallLlama()), qwen = ModelIdentity(SmallQwen3());
  EXPECT_EQ(IdentityDifference(llama, llama), "");
  EXPECT_EQ(llama.size(), 9u) << "as before there were options";
  ModelDescription biased = SmallLlama();
  biased.qkv_bias = true;
  EXPECT_EQ(IdentityDifference(llama, ModelIdentity(biased)),
            "queryKeyValueBias is not said there and true in the job");
  EXPECT_EQ(IdentityDifference(ModelIdentity(biased), llama),
            "queryKeyValueBias is true there and not said in the job");
  EXPECT_EQ(IdentityDifference(nullptr, llama), "attentionHeads is not said there and 4 in the job");
}

class Export : public testing::Test {
 protected:
  Reader Save(const ModelDescription& model, int world = 3) {
    Result<Reader> reader = Reader::Open(SaveModel(root_, model, 5, world));
    if (!reader) throw std::runtime_error(reader.error().message);
    return std::move(*reader);
  }
  // Elements of the exported tensors that are not those of step 5, after rounding to `dtype`; -1 without the tensor.
  int64_t Wrong(const ModelDescription& model, const std::string& dtype) {
    const Result<ForeignTensors> found = ForeignTensors::Open(out_, PosixFileSystem());
    if (!found) throw std::runtime_error(found.error().message);
    if (found->all().size() != TensorsOf(model).size()) return -1;
    int64_t wrong = 0;
    for (const TensorInfo& tensor : TensorsOf(model)) {
      const auto at = found->all().find(tensor.name);
      if (at == found->all().end() || at->second.dtype != dtype || at->second.shape != tensor.global_shape) return -1;
      std::vector<char> bytes;
      EXPECT_TRUE(found->Read(at->second, bytes));
      const int64_t n = *ElementCount(tensor.global_shape);
      std::vector<char> expected(static_cast<size_t>(n * *DtypeBytes(dtype)));
      for (int64_t i = 0; i < n; ++i) {
        const float value = SampleValue(StableHash(tensor.name), i, 5);
        EXPECT_TRUE(ConvertFloats("F32", &value, 1, dtype, expected.data() + i * *DtypeBytes(dtype)));
      }
      wrong += bytes != expected;
    }
    return wrong;
  }

  TempDirectory temp_{Storage::kMemory};
  const std::string root_ = temp_.path() + "/job", out_ = temp_.path() + "/out";
};

TEST_F(Export, OneFileWithTheValuesOfAllRanks) {
  for (const ModelDescription& model : {SmallLlama(), SmallGpt2(), SmallMistral(), SmallQwen2(), SmallQwen3()}) {
    Reader reader = Save(model);
    const Result<ExportInfo> info = ExportHuggingFace(reader, out_, {});
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_THAT(info->files, ElementsAre("model.safetensors", "config.json"));
    EXPECT_EQ(info->tensors, static_cast<int64_t>(TensorsOf(model).size()));
    EXPECT_EQ(info->bytes, static_cast<int64_t>(stdfs::file_size(out_ + "/model.safetensors")));
    EXPECT_EQ(Wrong(model, "F32"), 0);
    EXPECT_EQ(nlohmann::json::parse(Text(out_ + "/config.json")), nlohmann::json(ConfigJson(model, "F32")));
    stdfs::remove_all(root_);
    stdfs::remove_all(out_);
  }
}

TEST_F(Export, InBfloat16AndInFilesOfASizeWithAnIndex) {
  Reader reader = Save(SmallLlama());
  const Result<ExportInfo> info = ExportHuggingFace(reader, out_, {"BF16", 1500});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(Wrong(SmallLlama(), "BF16"), 0);
  const nlohmann::json index = nlohmann::json::parse(Text(out_ + "/model.safetensors.index.json"));
  int64_t total = 0;
  for (const TensorInfo& tensor : TensorsOf(SmallLlama())) total += *ElementCount(tensor.global_shape) * 2;
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), TensorsOf(SmallLlama()).size());
  const size_t files = info->files.size() - 2;
  ASSERT_EQ(files, 10u);
  EXPECT_EQ(info->files[0], "model-00001-of-00010.safetensors");
  EXPECT_EQ(info->files[9], "model-00010-of-00010.safetensors");
  EXPECT_EQ(info->files.back(), "config.json") << "last: a directory that has it is whole";
  for (size_t i = 0; i < files; ++i) {
    const Result<SafetensorsHeader> header = ReadSafetensorsHeader(out_ + "/" + info->files[i], PosixFileSystem());
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->metadata.at("format"), "pt") << "transformers insists";
    const int64_t bytes = header->entries.back().end - header->data_begin;
    EXPECT_TRUE(bytes <= 1500 || header->entries.size() == 1) << bytes;
  }
}

TEST_F(Export, NothingIsLeftOfOneThatFails) {
  Reader reader = Save(SmallLlama());
  std::fstream shard(root_ + "/step-00000005/" + ShardPath("model", 2),
                     std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(4096);
  shard.put('\x55');
  shard.close();
  for (const bool dcp : {false, true}) {
    const Result<ExportInfo> info =
        dcp ? ExportDcp(root_ + "/step-00000005", out_) : ExportHuggingFace(reader, out_, {"F32", 1500});
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(info.error().message, HasSubstr("shard-00003-model-00001-of-00001.safetensors: tensor "));
    EXPECT_THAT(info.error().message, HasSubstr(" of rank 2: bytes 4096 to "));
    EXPECT_FALSE(stdfs::exists(out_));
  }
}

TEST_F(Export, ADirectoryWithAnythingInItIsLeftAlone) {
  Reader reader = Save(SmallLlama());
  stdfs::create_directory(out_);
  std::ofstream(out_ + "/notes.txt") << "mine";
  for (const Result<ExportInfo>& info :
       {ExportHuggingFace(reader, out_, {}), ExportDcp(root_ + "/step-00000005", out_)}) {
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().message, out_ + " is not empty (notes.txt): export into a new directory");
  }
  EXPECT_EQ(Text(out_ + "/notes.txt"), "mine");
  stdfs::remove(out_ + "/notes.txt");
  EXPECT_TRUE(ExportHuggingFace(reader, out_, {})) << "an empty one will do";
}

TEST_F(Export, AModelWithoutANameIsRefused) {
  const Fence fence{"sample", 1, 0};
  ASSERT_TRUE(TakeOver(root_, fence));
  ASSERT_TRUE(SaveSample(root_, 1, fence, 1));
  Result<Reader> reader = Reader::Open(root_ + "/step-00000001");
  EXPECT_THAT(ExportHuggingFace(*reader, out_, {}).error().message,
              HasSubstr("train_state.json does not describe the model as our trainer does: "));
  stdfs::remove_all(root_);
  ModelDescription model = SmallLlama();
  Reader other = Save(model);
  nlohmann::json state = other.train_state();
  model.ffn = 25;
  ASSERT_TRUE(DescribeModel(other));
  stdfs::remove_all(root_);
  // Tensors of one model, train state of another.
  ASSERT_TRUE(TakeOver(root_, fence));
  SaveRequest request = SampleRequest(root_, 5, fence, 0, 1);
  std::vector<SampleTensor> tensors;
  for (const TensorInfo& tensor : TensorsOf(model)) tensors.push_back({tensor.name, tensor.global_shape});
  const SampleShards shards(tensors, 0, 1, 5);
  request.model = shards.model;
  ASSERT_TRUE(Commit(request, state.dump(), {WriteShards(request)->manifest}));
  Result<Reader> mixed = Reader::Open(root_ + "/step-00000005");
  EXPECT_THAT(DescribeModel(*mixed).error().message,
              HasSubstr("mlp.gate_proj.weight is [0:25, 0:16], not [0:24, 0:16]: it cannot be exported"));
}

int64_t PeakResidentKb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}

// 440 MB of weights in tensors of at most 42 MB: memory must not grow by more than the largest one and a constant.
TEST_F(Export, MemoryIsBoundedByTheLargestTensor) {
  TempDirectory disk;
  ModelDescription model = SmallLlama();
  model.layers = 3, model.hidden = 1024, model.heads = model.kv_heads = 8, model.ffn = 10240, model.vocab = 10240;
  model.tied = true;
  const Fence fence{"sample", 1, 0};
  ASSERT_TRUE(TakeOver(disk.path() + "/job", fence));
  SaveRequest request = SampleRequest(disk.path() + "/job", 1, fence, 0, 1);
  int64_t total = 0, largest = 0;
  {
    std::vector<float> shared(static_cast<size_t>(model.vocab * model.hidden), 1.0f);
    for (const TensorInfo& t : TensorsOf(model)) {
      const int64_t bytes = *ElementCount(t.global_shape) * 4;
      total += bytes;
      largest = std::max(largest, bytes);
      request.model.push_back({t.name, "F32", t.global_shape, std::vector<int64_t>(t.global_shape.size(), 0),
                               t.global_shape, shared.data()});
    }
    const nlohmann::json state = {{"maxPositions", 64}, {"model", ModelIdentity(model)}};
    ASSERT_TRUE(Commit(request, state.dump(), {WriteShards(request)->manifest}));
  }
  constexpr int64_t kConstant = 80 << 20;
  ASSERT_GT(total, 2 * (largest + kConstant)) << "else the bound says nothing";
  Result<Reader> reader = Reader::Open(disk.path() + "/job/step-00000001");
  ASSERT_TRUE(reader);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = PeakResidentKb();
  ASSERT_TRUE(ExportHuggingFace(*reader, disk.path() + "/out", {}));
  EXPECT_LE((PeakResidentKb() - before) * 1024, largest + kConstant);
}

TEST_F(Export, DcpHasTheShardsOfModelAndOptimizerSideBySide) {
  Save(SmallLlama(), 3);
  const Result<ExportInfo> info = ExportDcp(root_ + "/step-00000005", out_);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->tensors, 3 * static_cast<int64_t>(TensorsOf(SmallLlama()).size()));
  EXPECT_THAT(info->files,
              testing::UnorderedElementsAre(
                  "shard-00001-model-00001-of-00002.safetensors", "shard-00001-model-00002-of-00002.safetensors",
                  "shard-00002-model-00001-of-00002.safetensors", "shard-00002-model-00002-of-00002.safetensors",
                  "shard-00003-model-00001-of-00002.safetensors", "shard-00003-model-00002-of-00002.safetensors",
                  "train_state.json"));
  const Result<ForeignTensors> found = ForeignTensors::Open(out_, PosixFileSystem());
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->all().size(), static_cast<size_t>(info->tensors));
  int64_t wrong = 0;
  for (const auto& [name, tensor] : found->all()) {
    std::vector<char> bytes;
    ASSERT_TRUE(found->Read(tensor, bytes));
    for (int64_t i = 0; i < *ElementCount(tensor.shape); ++i) {
      const float value = SampleValue(StableHash(name), i, 5);
      wrong += std::memcmp(&value, bytes.data() + i * 4, 4) != 0;
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(nlohmann::json::parse(Text(out_ + "/train_state.json"))["step"], 5);
}

// Else one would remove at its end what the other has written.
TEST(ExportDirectoryTest, OfTwoThatFillADirectoryAtOnceTheSecondIsRefused) {
  const TempDirectory temp;
  const std::string path = temp.path() + "/out";
  {
    auto first = ExportDirectory::Open(path, PosixFileSystem());
    ASSERT_TRUE(first) << first.error().message;
    const auto second = ExportDirectory::Open(path, PosixFileSystem(), "merge");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().message, path + " is being filled by another program: merge into a new directory");
    ASSERT_TRUE(first->WriteText("config.json", "{}"));
    EXPECT_TRUE(stdfs::exists(path + "/config.json"));
  }
  EXPECT_FALSE(stdfs::exists(path)) << "the first did not finish";
  auto third = ExportDirectory::Open(path, PosixFileSystem());
  ASSERT_TRUE(third && third->WriteText("config.json", "{}") && third->Finish());
}

}  // namespace
}  // namespace trainyard::checkpoint
