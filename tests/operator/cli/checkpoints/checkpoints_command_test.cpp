#include "operator/cli/checkpoints/checkpoints_command.h"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/cli/exit_codes.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"

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
    AddCheckpointsCommand(app, code, out_, err_);
    std::reverse(args.begin(), args.end());
    args.push_back("checkpoints");
    app.parse(args);
    return code;
  }
  void Break() { fs::remove(root_ + "/step-00000200/" + checkpoint::ShardPath("model", 1)); }

  checkpoint::TempDirectory temp_;
  const std::string root_ = temp_.path();
  std::ostringstream out_, err_;
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

}  // namespace
}  // namespace trainyard::cli
