// What text is made with: weights, tokenizer, tokens that end a text.
#include "trainer/generate/source.h"

#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/checkpoint/peft_sample.h"
#include "tests/trainer/generate/published_model.h"
#include "tests/trainer/tokenizer/model_files.h"
#include "trainer/checkpoint/merge.h"

namespace trainyard::generate {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SourceTest : public testing::Test {
 protected:
  // A checkpoint of ours, of step 5 and of two ranks; returns its directory.
  std::string Checkpoint(const checkpoint::ModelDescription& model) {
    return checkpoint::SaveModel(files_.Path("job"), model, 5, 2);
  }
  // A published Llama of 31 tokens.
  std::string Published(at::ScalarType type = at::kFloat) {
    WritePublished(model::ReadGolden("llama_tied"), files_.Path("published"), type);
    return files_.Path("published");
  }
  static Source Open(const std::string& checkpoint, const std::string& model) {
    Request request;
    request.checkpoint = checkpoint, request.model = model;
    Result<Source> source = OpenSource(request);
    if (!source) throw std::runtime_error(source.error().message);
    return std::move(*source);
  }
  static std::string Problem(const std::string& checkpoint, const std::string& model) {
    Request request;
    request.checkpoint = checkpoint, request.model = model;
    const Result<Source> source = OpenSource(request);
    return source ? "none" : source.error().message;
  }

  tokenizer::ModelFiles files_;
};

TEST_F(SourceTest, WeightsOfACheckpointAreThoseThatWereSaved) {
  for (const auto& model : {checkpoint::SmallLlama(), checkpoint::SmallQwen3(), checkpoint::SmallGpt2()}) {
    fs::remove_all(files_.Path("job"));
    Source source = Open(Checkpoint(model), "");
    Request request;
    EXPECT_EQ(TypeOf(request, source), at::kFloat);  // as checkpoints are
    const auto weights = LoadWeights(source, at::kFloat);
    ASSERT_TRUE(weights) << weights.error().message;
    const auto rounded = LoadWeights(source, at::kBFloat16);
    ASSERT_TRUE(rounded) << rounded.error().message;
    const auto units = model::Units(model::ConfigOf(model));
    int64_t numbers = 0;
    for (int u = 0; u < static_cast<int>(units.size()); ++u) {
      for (int i = 0; i < static_cast<int>(units[u].params.size()); ++i) {
        const engine::ParamSpec& spec = units[u].params[i];
        const at::Tensor& p = (*weights)->Param(u, i);
        ASSERT_EQ(p.sizes(), spec.shape) << spec.name;
        const at::Tensor flat = p.flatten();
        for (const int64_t at : {int64_t{0}, spec.numel() / 2, spec.numel() - 1}) {
          EXPECT_EQ(flat[at].item<float>(), checkpoint::SampleValue(StableHash(spec.name), at, 5)) << spec.name;
        }
        EXPECT_TRUE(at::equal((*rounded)->Param(u, i), p.to(at::kBFloat16))) << spec.name;
        numbers += spec.numel();
      }
    }
    EXPECT_EQ((*weights)->count(), numbers);
  }
}

TEST_F(SourceTest, ThePrecisionIsThatOfTheFilesUnlessSaid) {
  Request request;
  EXPECT_EQ(TypeOf(request, Open("", Published())), at::kFloat);
  fs::remove_all(files_.Path("published"));
  const Source half = Open("", Published(at::kBFloat16));
  EXPECT_EQ(TypeOf(request, half), at::kBFloat16);
  request.precision = "FP32";
  EXPECT_EQ(TypeOf(request, half), at::kFloat);
}

TEST_F(SourceTest, TheTokenizerIsTheModelsOwnElseBytes) {
  const Source source = Open(Checkpoint(checkpoint::SmallLlama()), "");
  Request request;
  EXPECT_THAT(OpenTokenizer(request, source).error().message,
              HasSubstr("there is no tokenizer in " + files_.Path("job") +
                        "/huggingface, and the 40 tokens of the "
                        "model are not bytes; name the model's own with --tokenizer"));
  request.tokenizer = "bytes";
  EXPECT_THAT(OpenTokenizer(request, source).error().message,
              HasSubstr("the tokenizer bytes has 256 tokens, the model in " + source.path + " 40"));
  checkpoint::ModelDescription bytes = checkpoint::SmallLlama();
  bytes.vocab = 256;
  fs::remove_all(files_.Path("job"));
  const Source of_bytes = Open(Checkpoint(bytes), "");
  EXPECT_EQ((*OpenTokenizer({}, of_bytes))->kind(), "bytes");
  EXPECT_THAT(EndTokens(of_bytes.companions, 256, **OpenTokenizer({}, of_bytes)).value(), IsEmpty());
#ifdef TRAINYARD_BUILD_TOKENIZERS
  fs::create_directories(files_.Path("job") + "/huggingface");
  files_.Write("job/huggingface/tokenizer.json", tokenizer::kWordTokenizer);
  files_.Write("job/huggingface/tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto found = OpenTokenizer({}, of_bytes);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ((*found)->kind(), "tokenizer.json");
  EXPECT_THAT(EndTokens(of_bytes.companions, 256, **found).value(), ElementsAre(2));
#endif
}

TEST_F(SourceTest, TokensThatEndATextComeFromTheModelsFiles) {
  const std::string directory = Published();
  const auto tokenizer = tokenizer::Tokenizer::Open("bytes");
  const auto with = [&](const std::string& generation) {
    files_.Write("published/generation_config.json", generation);
    const auto ends = EndTokens(directory, 31, **tokenizer);
    return ends ? ::testing::PrintToString(*ends) : ends.error().message;
  };
  EXPECT_EQ(with(R"({"eos_token_id": 7})"), "{ 7 }");
  EXPECT_EQ(with(R"({"eos_token_id": [7, 9]})"), "{ 7, 9 }");
  EXPECT_EQ(with(R"({"eos_token_id": null})"), "{ 2 }");  // that of config.json
  EXPECT_THAT(with(R"({"eos_token_id": 31})"),
              HasSubstr("published/generation_config.json: eos_token_id: 31 is none of the model's 31 tokens"));
  EXPECT_THAT(with(R"({"eos_token_id": "x"})"), HasSubstr("eos_token_id is neither a token nor a list of them"));
  EXPECT_THAT(with("[]"), HasSubstr("generation_config.json is not a JSON object"));
}

TEST_F(SourceTest, WhatIsNoModelIsNamed) {
  EXPECT_THAT(Problem("", files_.Path("none")), HasSubstr(files_.Path("none") + "/config.json"));
  EXPECT_THAT(Problem(files_.Path("none"), ""), HasSubstr(files_.Path("none")));
  const std::string directory = Published();
  fs::resize_file(directory + "/model.safetensors", 3000);
  EXPECT_THAT(Problem("", directory), HasSubstr("model.safetensors"));
}

// Element by element what a merged directory has, in both types and both orientations of matrices.
TEST_F(SourceTest, BaseAndAdapterAreTheMergedModel) {
  for (const auto& [name, targets] : std::map<std::string, std::vector<std::string>>{
           {"llama_grouped_queries", {"down_proj", "q_proj", "v_proj"}}, {"gpt2_tied", {"c_attn", "c_proj"}}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(name);
      for (const char* part : {"published", "adapter", "merged"}) fs::remove_all(files_.Path(part));
      WritePublished(model::ReadGolden(name), files_.Path("published"), type);
      Source source = Open("", files_.Path("published"));
      checkpoint::AdapterDescription adapter;
      adapter.rank = 2, adapter.alpha = 3, adapter.targets = targets;
      checkpoint::WritePeft(files_.Path("adapter"), source.model, adapter);
      const auto done =
          checkpoint::MergeAdapter({files_.Path("published"), files_.Path("adapter"), files_.Path("merged")});
      ASSERT_TRUE(done) << done.error().message;
      Request request;
      request.adapter = files_.Path("adapter");
      auto opened = OpenAdapter(request, source);
      ASSERT_TRUE(opened) << opened.error().message;
      ASSERT_TRUE(*opened);
      const auto both = LoadWeights(source, type, &**opened), plain = LoadWeights(source, type);
      ASSERT_TRUE(both) << both.error().message;
      Source merged = Open("", files_.Path("merged"));
      const auto expected = LoadWeights(merged, type);
      ASSERT_TRUE(expected) << expected.error().message;
      int64_t changed = 0;
      const auto units = model::Units(model::ConfigOf(source.model));
      for (int u = 0; u < static_cast<int>(units.size()); ++u) {
        for (int i = 0; i < static_cast<int>(units[u].params.size()); ++i) {
          EXPECT_TRUE(at::equal((*both)->Param(u, i), (*expected)->Param(u, i))) << units[u].params[i].name;
          changed += at::equal((*both)->Param(u, i), (*plain)->Param(u, i)) ? 0 : 1;
        }
      }
      EXPECT_EQ(changed, done->matrices);
    }
  }
  Request request;
  request.adapter = files_.Path("none");
  Source source = Open("", files_.Path("published"));
  EXPECT_THAT(OpenAdapter(request, source).error().message, HasSubstr(files_.Path("none")));
}

TEST_F(SourceTest, ADamagedCheckpointIsAnErrorThatNamesTheFile) {
  const std::string path = Checkpoint(checkpoint::SmallLlama());
  Source source = Open(path, "");
  const std::string shard = path + "/" + checkpoint::ShardPath("model", 0);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(shard)) - 3);
  file.put('\x55');
  file.close();
  const auto weights = LoadWeights(source, at::kFloat);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(weights.error().message, HasSubstr("shard-00001-model-00001-of-00001.safetensors"));
}

}  // namespace
}  // namespace trainyard::generate
