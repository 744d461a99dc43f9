#include "operator/cli/checkpoints/checkpoints_command.h"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/cli/checkpoints/pod.h"
#include "operator/cli/exit_codes.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    const checkpoint::Fence fence{"uid-1", 2, 0};
    ASSERT_TRUE(checkpoint::TakeOver(root_, fence));
    ASSERT_TRUE(checkpoint::SaveSample(root_, 100, fence, 2));
    ASSERT_TRUE(checkpoint::SaveSample(root_, 200, fence, 3));
  }
  // Runs `trainyard checkpoints ARGS`, as main does.
  int Run(std::vector<std::string> args) {
    CLI::App app("test", "trainyard");
    int code = -1;
    out_.str("");
    err_.str("");
    AddCheckpointsCommand(app, code, out_, err_,
                          [this](const InClusterFlags& flags, const std::vector<std::string>& words) {
                            cluster_ = flags;
                            in_pod_ = words;
                            return 7;
                          });
    std::reverse(args.begin(), args.end());
    args.push_back("checkpoints");
    app.parse(args);
    return code;
  }
  void Break() { fs::remove(root_ + "/step-00000200/" + checkpoint::ShardPath("model", 1)); }

  checkpoint::TempDirectory temp_;
  const std::string root_ = temp_.path();
  std::ostringstream out_, err_;
  InClusterFlags cluster_;           // of the last command for a pod
  std::vector<std::string> in_pod_;  // and its words
};

TEST_F(Checkpoints, ListShowsATableNewestFirst) {
  Break();
  EXPECT_EQ(Run({"list", root_}), kExitOk);
  std::istringstream lines(out_.str());
  std::string header, first, second;
  std::getline(lines, header);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(header, testing::MatchesRegex("STEP +SIZE +TIME +RANKS +STATE"));
  EXPECT_THAT(first, testing::StartsWith("200 "));
  EXPECT_THAT(first, HasSubstr("bad: model/shard-00002-model-00001-of-00001.safetensors: tensor "
                               "model.embed_tokens.weight of rank 1: the file is missing"));
  EXPECT_THAT(second, testing::MatchesRegex("100 +[0-9.]+ [kKM]?B +2023-11-14T22:13:20Z +2 +complete"));
}

TEST_F(Checkpoints, ListAsJson) {
  Break();
  EXPECT_EQ(Run({"list", root_, "-o", "json"}), kExitOk);
  const nlohmann::json list = nlohmann::json::parse(out_.str());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["valid"], false);
  EXPECT_THAT(list[0]["problem"].get<std::string>(), HasSubstr("of rank 1"));
  EXPECT_EQ(list[1]["step"], 100);
  EXPECT_EQ(list[1]["world"], 2);
  EXPECT_EQ(list[1]["jobUid"], "uid-1");
  EXPECT_EQ(list[1]["attempt"], 2);
  EXPECT_FALSE(list[1].contains("problem"));
}

TEST_F(Checkpoints, AnEmptyDirectoryAndNoneAreToldApart) {
  checkpoint::TempDirectory empty;
  EXPECT_EQ(Run({"list", empty.path()}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("no checkpoints in"));
  EXPECT_EQ(Run({"list", empty.path(), "-o", "json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str()), nlohmann::json::array());
  EXPECT_EQ(Run({"list", root_ + "/nowhere"}), kExitNotFound);
  EXPECT_THAT(err_.str(), HasSubstr("does not exist"));
  EXPECT_EQ(Run({"verify", empty.path()}), kExitNotFound);
  EXPECT_EQ(Run({"verify", root_ + "/step-00000999"}), kExitNotFound);
}

TEST_F(Checkpoints, VerifyReadsAllOfARootOrOne) {
  EXPECT_EQ(Run({"verify", root_}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("step-00000200: ok, 12 tensors in 6 files, "));
  EXPECT_THAT(out_.str(), HasSubstr("step-00000100: ok, 12 tensors in 4 files, "));
  EXPECT_EQ(Run({"verify", root_ + "/step-00000100/"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::Not(HasSubstr("step-00000200")));
}

TEST_F(Checkpoints, VerifyNamesFileTensorAndRank) {
  Break();
  EXPECT_EQ(Run({"verify", root_}), kExitJobFailed);
  EXPECT_THAT(out_.str(), HasSubstr("step-00000200: bad: model/shard-00002-model-00001-of-00001.safetensors: tensor "
                                    "model.embed_tokens.weight of rank 1: the file is missing"));
  EXPECT_THAT(out_.str(), HasSubstr("step-00000100: ok"));
  fs::remove(root_ + "/step-00000100/manifest.json");
  EXPECT_EQ(Run({"verify", root_ + "/step-00000100"}), kExitJobFailed);
  EXPECT_THAT(out_.str(), HasSubstr("step-00000100: bad: manifest.json: the file is missing"));
}

TEST_F(Checkpoints, VerifyTakesACheckpointUnderAnyName) {
  fs::rename(root_ + "/step-00000200", root_ + "/best");
  EXPECT_EQ(Run({"verify", root_ + "/best"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::StartsWith("best: ok"));
}

TEST_F(Checkpoints, VerifyAsJson) {
  Break();
  EXPECT_EQ(Run({"verify", root_, "--json"}), kExitJobFailed);
  const nlohmann::json all = nlohmann::json::parse(out_.str());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["valid"], false);
  EXPECT_EQ(all[0]["problems"][0]["rank"], 1);
  EXPECT_EQ(all[0]["problems"][0]["tensor"], "model.embed_tokens.weight");
  EXPECT_EQ(all[1]["valid"], true);
  EXPECT_EQ(all[1]["problems"], nlohmann::json::array());
  EXPECT_EQ(Run({"verify", root_, "--step", "100", "--json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str()).size(), 1u);
}

TEST_F(Checkpoints, ShowSaysWhoWroteWhat) {
  EXPECT_EQ(Run({"show", root_}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("step         200\n"));
  EXPECT_THAT(out_.str(), HasSubstr("2023-11-14T22:13:20Z by job uid-1, attempt 2, round 0\n"));
  EXPECT_THAT(out_.str(), HasSubstr("3 ranks, in 6 files\n"));
  EXPECT_THAT(out_.str(), HasSubstr("4 tensors, 2.17K elements, F32, 8.7 kB"));
  EXPECT_THAT(out_.str(), HasSubstr("  step   200\n")) << "train state";
  EXPECT_THAT(out_.str(), testing::ContainsRegex("model.embed_tokens.weight +model +F32 +\\[37, 24\\] +3\n"));
  EXPECT_EQ(Run({"show", root_, "--step", "100", "--boxes"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::ContainsRegex("model.norm.weight +F32 +\\[3\\] +\\[2:3\\] +1 +[0-9]+-[0-9]+ +model/"
                                                 "shard-00002-model-00001-of-00001.safetensors\n"));
}

TEST_F(Checkpoints, ShowAsJsonHasTheBoxesOfEachRank) {
  EXPECT_EQ(Run({"show", root_ + "/step-00000100", "--boxes", "--json"}), kExitOk);
  const nlohmann::json shown = nlohmann::json::parse(out_.str());
  EXPECT_EQ(shown["step"], 100);
  EXPECT_EQ(shown["world"], 2);
  EXPECT_EQ(shown["trainState"]["step"], 100);
  EXPECT_EQ(shown["files"].size(), 4u);
  EXPECT_EQ(shown["tensors"].size(), 12u);
  const nlohmann::json& boxes = shown["tensors"][0]["boxes"];
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_EQ(boxes[1]["offset"], (std::vector<int64_t>{19, 0}));
  EXPECT_EQ(boxes[1]["shape"], (std::vector<int64_t>{18, 24}));
  EXPECT_EQ(boxes[1]["rank"], 1);
  EXPECT_EQ(boxes[1]["end"].get<int64_t>() - boxes[1]["begin"].get<int64_t>(), 18 * 24 * 4);
}

TEST_F(Checkpoints, ShowTakesTheNewestValidOneAndNamesWhatItSkipped) {
  Break();
  EXPECT_EQ(Run({"show", root_}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("step         100\n"));
  EXPECT_THAT(err_.str(), HasSubstr("trainyard: skipped step-00000200 is bad: model/shard-00002"));
  EXPECT_EQ(Run({"show", root_, "--step", "300"}), kExitNotFound);
  EXPECT_THAT(err_.str(), HasSubstr("there is no checkpoint of step 300 in"));
  EXPECT_EQ(Run({"show", root_ + "/step-00000100", "--step", "100"}), kExitBadInput);
}

TEST_F(Checkpoints, DiffEndsWithOneWhenTensorsDiffer) {
  const std::string a = root_ + "/step-00000100", b = root_ + "/step-00000200";
  EXPECT_EQ(Run({"diff", a, b}), kExitJobFailed);
  EXPECT_THAT(out_.str(), testing::ContainsRegex("model.norm.weight +3 +3 +100 +[0-9.e-]+ +-\n"));
  EXPECT_THAT(out_.str(), HasSubstr("12 tensors differ; 12 are in both\ntrain state differs in: step\n"));
  EXPECT_EQ(Run({"diff", a, a}), kExitOk);
  EXPECT_EQ(out_.str(), "the same: 12 tensors, 26.0 kB\n");
  EXPECT_EQ(Run({"diff", a, root_, "--weights-only", "--json"}), kExitJobFailed);
  const nlohmann::json found = nlohmann::json::parse(out_.str());
  EXPECT_EQ(found["same"], false);
  EXPECT_EQ(found["tensors"], 4);
  EXPECT_EQ(found["differences"][3]["largestAbsolute"], 100);
  EXPECT_EQ(Run({"diff", a, root_ + "/nowhere"}), kExitNotFound);
}

TEST_F(Checkpoints, PruneSaysWhatItWouldDoAndDoesIt) {
  const checkpoint::Fence fence{"uid-1", 2, 0};
  ASSERT_TRUE(checkpoint::SaveSample(root_, 300, fence, 1));
  const std::vector<std::string> args = {"prune", root_, "--keep-last", "1", "--keep-every", "200"};
  std::vector<std::string> dry = args;
  dry.push_back("--dry-run");
  EXPECT_EQ(Run(dry), kExitOk);
  EXPECT_THAT(out_.str(), testing::MatchesRegex("would remove step 100\nwould free [0-9.]+ kB; 2 checkpoints stay\n"));
  EXPECT_TRUE(fs::exists(root_ + "/step-00000100"));
  EXPECT_EQ(Run(args), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("removed step 100\n"));
  EXPECT_FALSE(fs::exists(root_ + "/step-00000100"));
  EXPECT_TRUE(fs::exists(root_ + "/step-00000200"));
  EXPECT_EQ(Run({"prune", root_, "--keep-last", "1", "--json"}), kExitOk);
  const nlohmann::json answer = nlohmann::json::parse(out_.str());
  EXPECT_EQ(answer["removed"], (std::vector<int64_t>{200}));
  EXPECT_EQ(answer["kept"], 1);
  EXPECT_GT(answer["bytesFreed"], 20000);
}

TEST_F(Checkpoints, PruneDoesNotCountWhatHasRotted) {
  const std::string newest = root_ + "/step-00000200";
  std::fstream shard(newest + "/" + checkpoint::ShardPath(checkpoint::kModelGroup, 0), std::ios::in | std::ios::out);
  shard.seekg(-1, std::ios::end);
  const char byte = static_cast<char>(shard.get() ^ 1);
  shard.seekp(-1, std::ios::end);
  shard.put(byte);
  shard.close();
  for (const bool dry : {true, false}) {
    std::vector<std::string> args = {"prune", root_, "--keep-last", "1"};
    if (dry) args.push_back("--dry-run");
    EXPECT_EQ(Run(args), kExitOk);
    EXPECT_THAT(out_.str(), HasSubstr("2 checkpoints stay\n"));
    EXPECT_THAT(err_.str(), HasSubstr("trainyard: step-00000200 does not count, it is bad: model/shard-"));
  }
  EXPECT_TRUE(fs::exists(root_ + "/step-00000100")) << "the only one that is left";
  EXPECT_EQ(Run({"prune", newest, "--keep-last", "1"}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("is one checkpoint: name the directory that it is in"));
}

TEST_F(Checkpoints, ListOfOneCheckpointIsItsRow) {
  EXPECT_EQ(Run({"list", root_ + "/step-00000100/"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::MatchesRegex("STEP .*\n100 .* complete\n"));
  EXPECT_EQ(Run({"list", root_ + "/step-00000101"}), kExitNotFound);
  EXPECT_THAT(err_.str(), HasSubstr("there is no checkpoint " + root_ + "/step-00000101\n"));
}

TEST_F(Checkpoints, PruneLeavesWhatIsBeingReadAndNeedsARule) {
  const auto reader = checkpoint::Reader::Open(root_ + "/step-00000100");
  ASSERT_TRUE(reader);
  EXPECT_EQ(Run({"prune", root_, "--keep-last", "1", "--dry-run"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("kept step 100: it is being read\n"));
  EXPECT_EQ(Run({"prune", root_, "--keep-last", "1"}), kExitOk);
  EXPECT_TRUE(fs::exists(root_ + "/step-00000100"));
  EXPECT_THROW(Run({"prune", root_}), CLI::RequiredError);
  EXPECT_THROW(Run({"prune", root_, "--keep-last", "0"}), CLI::ValidationError);
}

TEST_F(Checkpoints, ExportAndImportAreEachOthersInverse) {
  const std::string job = root_ + "/llama", out = root_ + "/out", back = root_ + "/back";
  checkpoint::SaveModel(job, checkpoint::SmallLlama(), 5, 2);
  EXPECT_EQ(Run({"export", job, out, "--to", "huggingface", "--max-shard-size", "5 GB"}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("trainyard: --max-shard-size: "));
  EXPECT_EQ(Run({"export", job, out, "--to", "huggingface", "--max-shard-size", "500KB", "--json"}), kExitOk)
      << err_.str();
  const nlohmann::json exported = nlohmann::json::parse(out_.str());
  EXPECT_EQ(exported["checkpoint"], job + "/step-00000005");
  EXPECT_EQ(exported["tensors"], 21);
  EXPECT_EQ(exported["files"], (std::vector<std::string>{"model.safetensors", "config.json"}));
  EXPECT_EQ(Run({"import", out, back}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), testing::StartsWith(back + "/step-00000000: 21 tensors, "));
  EXPECT_EQ(Run({"diff", "--weights-only", job, back}), kExitOk) << out_.str();
  EXPECT_EQ(Run({"import", out, back}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("back is not empty (.staging): import into a new directory"));
  EXPECT_EQ(Run({"export", job, out, "--to", "dcp"}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("out is not empty (config.json): export into a new directory"));
  EXPECT_EQ(Run({"export", job, root_ + "/new/dcp", "--to", "dcp"}), kExitOk);
  EXPECT_EQ(Run({"import", root_ + "/new/dcp", root_ + "/again", "--config", out + "/config.json"}), kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("; 42 others of the source are no weights of the model\n"));
  EXPECT_EQ(Run({"import", root_ + "/nowhere", root_ + "/again"}), kExitNotFound);
  EXPECT_THROW(Run({"export", job, out}), CLI::RequiredError);
  EXPECT_THROW(Run({"export", job, out, "--to", "gguf"}), CLI::ValidationError);
}

TEST_F(Checkpoints, AnAdapterGoesOutInAndIntoItsBase) {
  using namespace checkpoint;
  const std::string job = root_ + "/adapter", base = root_ + "/base", peft = root_ + "/peft",
                    merged = root_ + "/merged";
  WriteHuggingFace(base, SmallLlama(), root_ + "/base-job", {.dtype = "BF16"});
  AdapterState state{.model = SmallLlama(), .adapter = {.rank = 2, .alpha = 4, .targets = {"q_proj"}}, .base = {}};
  SaveAdapter(job, state, 5, 2);
  EXPECT_EQ(Run({"list", job}), kExitOk);
  EXPECT_EQ(Run({"verify", job}), kExitOk);
  EXPECT_EQ(Run({"show", job}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("model.layers.1.self_attn.q_proj.lora_B.weight"));
  EXPECT_EQ(Run({"export", job, root_ + "/hf", "--to", "huggingface"}), kExitBadInput);
  EXPECT_THAT(err_.str(),
              HasSubstr("merge the two (trainyard checkpoints merge), or export the adapter alone with --to "
                        "peft\n"));
  EXPECT_EQ(Run({"export", job, peft, "--to", "peft", "--max-shard-size", "1GB"}), kExitBadInput);
  EXPECT_EQ(Run({"export", job, peft, "--to", "peft"}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), testing::StartsWith("step-00000005: 4 tensors, "));
  EXPECT_EQ(Run({"import", peft, root_ + "/back"}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("is an adapter: --base names the directory of its model\n"));
  EXPECT_EQ(Run({"import", peft, root_ + "/back", "--base", base}), kExitOk) << err_.str();
  EXPECT_EQ(Run({"diff", "--weights-only", job, root_ + "/back"}), kExitOk) << out_.str();
  EXPECT_EQ(Run({"merge", "--base", base, "--adapter", peft, "--to", merged}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr(", an adapter of rank 2 added to 2 of them\nthe adapter does not say which base"));
  const std::string bytes = root_ + "/\xff";  // a path need not be UTF-8
  fs::copy(base, bytes, fs::copy_options::recursive);
  for (const std::string json : {"--json"}) {
    EXPECT_EQ(Run({"import", peft, bytes + json, "--base", bytes, json}), kExitOk) << err_.str();
    EXPECT_EQ(Run({"export", bytes + json, bytes + json + "p", "--to", "peft", json}), kExitOk) << err_.str();
    EXPECT_EQ(Run({"merge", "--base", bytes, "--adapter", bytes + json, "--to", bytes + json + "m", json}), kExitOk);
    EXPECT_EQ(nlohmann::json::parse(out_.str())["base"], root_ + "/\xef\xbf\xbd");
    for (const char* look : {"list", "verify", "show"}) EXPECT_EQ(Run({look, bytes + json, json}), kExitOk);
    EXPECT_EQ(Run({"diff", bytes + json, bytes + json, json}), kExitOk);
    EXPECT_EQ(Run({"prune", bytes + json, "--keep-last", "1", json}), kExitOk);
  }
  EXPECT_EQ(Run({"merge", "--base", base, "--adapter", root_ + "/back", "--to", merged}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("merged is not empty"));
  EXPECT_EQ(Run({"merge", "--base", base, "--adapter", root_ + "/back", "--step", "0", "--to", root_ + "/m", "--json"}),
            kExitOk)
      << err_.str();
  EXPECT_EQ(nlohmann::json::parse(out_.str())["baseKnown"], true);
  EXPECT_EQ(Run({"merge", "--base", base, "--adapter", peft, "--step", "0", "--to", root_ + "/n"}), kExitBadInput);
  EXPECT_EQ(Run({"merge", "--base", base, "--adapter", root_ + "/nowhere", "--to", root_ + "/n"}), kExitNotFound);
  EXPECT_EQ(Run({"merge", "--base", base, "--to", root_ + "/n"}), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: name the adapter with --adapter\n");
  // With a job its own checkpoints are the adapter.
  EXPECT_EQ(Run({"merge", "--job", "j", "--base", "models:m", "--to", "models:out"}), 7);
  EXPECT_EQ(in_pod_, (std::vector<std::string>{"merge", "--base", kOnVolume + std::string("models:m"), "--adapter",
                                               kDirectory, "--to", kOnVolume + std::string("models:out")}));
}

TEST_F(Checkpoints, WithAJobTheCommandGoesToAPod) {
  using testing::ElementsAre;
  EXPECT_EQ(Run({"list", "--job", "llama", "-n", "team", "--image", "registry/trainer:1", "--json"}), 7);
  EXPECT_EQ(cluster_.job + " " + cluster_.ns + " " + cluster_.image, "llama team registry/trainer:1");
  EXPECT_THAT(in_pod_, ElementsAre("list", "{}", "--json"));
  EXPECT_EQ(Run({"verify", "--job", "llama", "--step", "200"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("verify", "{}", "--step", "200"));
  EXPECT_EQ(Run({"show", "--job", "llama", "--boxes", "-o", "json"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("show", "{}", "--boxes", "--json"));
  EXPECT_EQ(Run({"diff", "--job", "llama", "100", "step-00000200", "--weights-only"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("diff", "{}/step-00000100", "{}/step-00000200", "--weights-only"));
  EXPECT_EQ(Run({"prune", "--job", "llama", "--keep-last", "2", "--keep-every", "1000", "--dry-run"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("prune", "{}", "--keep-last", "2", "--keep-every", "1000", "--dry-run"));
  EXPECT_EQ(Run({"export", "--job", "llama", "models:out", "--to", "huggingface", "--step", "9"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("export", "{}", "{volume}models:out", "--to", "huggingface", "--step", "9"));
  EXPECT_EQ(Run({"export", "--job", "llama", "models:out", "--to", "huggingface", "--dtype", "bfloat16",
                 "--max-shard-size", "1GB"}),
            7);
  EXPECT_THAT(in_pod_, ElementsAre("export", "{}", "{volume}models:out", "--to", "huggingface", "--dtype", "bfloat16",
                                   "--max-shard-size", "1GB"));
  EXPECT_EQ(Run({"import", "--job", "llama", "models:hf", "checkpoints:base", "--config", "models:c.json"}), 7);
  EXPECT_THAT(in_pod_, ElementsAre("import", "{volume}models:hf", "{volume}checkpoints:base", "--config",
                                   "{volume}models:c.json"));
  for (const std::vector<std::string>& args : {std::vector<std::string>{"list"}, {"list", root_, "--job", "llama"}}) {
    EXPECT_EQ(Run(args), kExitBadInput);
    EXPECT_EQ(err_.str(), "trainyard: name a DIRECTORY, or a job with --job\n");
  }
  EXPECT_EQ(Run({"export", root_, "--to", "dcp"}), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: name the DIRECTORY to read and the one to write\n");
  EXPECT_EQ(Run({"export", root_, "models:out", "--job", "llama", "--to", "dcp"}), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: with --job name one place, the one to write\n");
  for (const std::vector<std::string>& args : {std::vector<std::string>{"export", "/out", "--to", "dcp"},
                                               {"import", "models:hf", "/out"},
                                               {"import", "models:hf", "models:out", "--config", "/out"}}) {
    std::vector<std::string> all = args;
    all.insert(all.end(), {"--job", "llama"});
    EXPECT_EQ(Run(all), kExitBadInput);
    EXPECT_THAT(err_.str(), HasSubstr("trainyard: '/out' is not VOLUME:PATH"));
  }
}

}  // namespace
}  // namespace trainyard::cli
