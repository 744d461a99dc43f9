#include "trainer/checkpoint/writer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trainer/checkpoint/file_text.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const Fence kFence{"4f6e-uid", 1, 0};

class Writer : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(TakeOver(root_, kFence)); }

  TempDirectory temp_;
  const std::string root_ = temp_.path() + "/job";
};

TEST_F(Writer, FilesAreSafetensorsWithShardingInformation) {
  ASSERT_TRUE(SaveSample(root_, 200, kFence, 3));
  const fs::path step = fs::path(root_) / "step-00000200";
  for (const char* name :
       {"manifest.json", "train_state.json", "model/shard-00001-model-00001-of-00001.safetensors",
        "optim/shard-00003-model-00001-of-00001.safetensors", "optim/shard-00003-model-00001-of-00001.hashes"}) {
    EXPECT_TRUE(fs::exists(step / name)) << name;
  }
  const std::string text = Text(step / "model/shard-00002-model-00001-of-00001.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ((8 + length) % 4096, 0u) << "the data begins on a page";
  const nlohmann::json header = nlohmann::json::parse(text.substr(8, length));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(header["__metadata__"]["DCP_VERSION"], "1.0");
  const nlohmann::json sharding = nlohmann::json::parse(header["__metadata__"]["DCP_SHARDING_INFO"].get<std::string>());
  EXPECT_EQ(sharding["model.embed_tokens.weight"]["saved_offsets"], (std::vector<int64_t>{13, 0}));
  EXPECT_EQ(sharding["model.norm.weight"]["saved_offsets"], (std::vector<int64_t>{1}));
  // No holes: the ranges lie end to end and fill the file.
  std::map<int64_t, int64_t> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") ranges[entry["data_offsets"][0]] = entry["data_offsets"][1];
  }
  int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(8 + length + static_cast<uint64_t>(at), text.size());
}

TEST_F(Writer, TheManifestComesLastAndNothingIsThereBeforeTheCommit_Bug21_25) {
  const SampleShards shards(SmallModel(), 0, 1, 7);
  SaveRequest request = SampleRequest(root_, 7, kFence, 0, 1);
  request.model = shards.model;
  request.optim = shards.optim;
  const Result<RankReport> report = WriteShards(request);
  ASSERT_TRUE(report);
  EXPECT_GT(report->bytes, shards.bytes());
  EXPECT_TRUE(List(root_)->empty());
  EXPECT_FALSE(fs::exists(StagingDirectory(root_, kFence) + "/step-00000007/manifest.json"));
  const Result<CommitInfo> info = Commit(request, "{\"step\": 7}", {report->manifest});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->path, root_ + "/step-00000007");
  EXPECT_TRUE(fs::is_empty(StagingDirectory(root_, kFence)));
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(info->path)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_EQ(info->bytes, bytes);
  const Result<std::vector<CheckpointInfo>> list = List(root_);
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ((*list)[0].bytes, bytes);
  EXPECT_EQ((*list)[0].created_ms, 1'700'000'000'007);
  EXPECT_EQ((*list)[0].job_uid, kFence.job_uid);
  EXPECT_EQ(LoadSample(info->path, 7, 1), "");
}

TEST_F(Writer, RanksWithoutRowsWriteNoFile) {
  const std::vector<SampleTensor> tiny = {{"norm.weight", {2}}, {"empty", {0, 5}}, {"scale", {}}};
  ASSERT_TRUE(SaveSample(root_, 1, kFence, 8, tiny));
  EXPECT_TRUE(fs::exists(root_ + "/step-00000001/" + ShardPath("model", 1)));
  EXPECT_FALSE(fs::exists(root_ + "/step-00000001/" + ShardPath("model", 2)));
  EXPECT_TRUE(Verify(root_ + "/step-00000001")->ok());
  for (int world : {1, 3, 8}) EXPECT_EQ(LoadSample(root_ + "/step-00000001", 1, world, tiny), "");
}

TEST_F(Writer, RefusesWhatDoesNotFitTogether) {
  std::vector<std::string> reports;
  for (int rank = 0; rank < 2; ++rank) {
    const SampleShards shards(SmallModel(), rank, 2, 7);
    SaveRequest request = SampleRequest(root_, 7, kFence, rank, 2);
    request.model = shards.model;
    const Result<RankReport> report = WriteShards(request);
    ASSERT_TRUE(report);
    reports.push_back(report->manifest);
  }
  const SaveRequest request = SampleRequest(root_, 7, kFence, 0, 2);
  const auto message = [&](const std::vector<std::string>& list, const std::string& state = "{}") {
    const Result<CommitInfo> info = Commit(request, state, list);
    return info ? "committed" : info.error().message;
  };
  EXPECT_THAT(message({reports[0]}), HasSubstr("1 of 2 ranks reported"));
  EXPECT_THAT(message({reports[0], reports[0]}), HasSubstr("rank 0 reported twice"));
  EXPECT_THAT(message({}), HasSubstr("no rank reported"));
  EXPECT_THAT(message({reports[0], "{"}), HasSubstr("not what WriteShards returned"));
  EXPECT_THAT(message(reports, "[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message(reports, "{\"a\": "), HasSubstr("not a JSON object"));
  SaveRequest other = request;
  other.step = 8;
  EXPECT_THAT(Commit(other, "{}", reports).error().message, HasSubstr("not of the save"));
  EXPECT_TRUE(List(root_)->empty());
  EXPECT_EQ(message({reports[1], reports[0]}), "committed") << "any order";
}

TEST_F(Writer, BoxesOfTheRanksMustTileEachTensor) {
  float data[8] = {};
  const auto save = [&](const TensorSlice& a, const TensorSlice& b) {
    std::vector<std::string> reports;
    for (int rank = 0; rank < 2; ++rank) {
      SaveRequest request = SampleRequest(root_, 7, kFence, rank, 2);
      request.model = {rank == 0 ? a : b};
      Result<RankReport> report = WriteShards(request);
      if (!report) return report.error().message;
      reports.push_back(report->manifest);
    }
    const Result<CommitInfo> info = Commit(SampleRequest(root_, 7, kFence, 0, 2), "{}", reports);
    return info ? "committed" : info.error().message;
  };
  const TensorSlice first{"w", "F32", {4, 2}, {0, 0}, {2, 2}, data}, second{"w", "F32", {4, 2}, {2, 0}, {2, 2}, data};
  EXPECT_THAT(save(first, first), HasSubstr("tensor w: rows [0, 2) are there twice"));
  TensorSlice less = second;
  less.shape = {1, 2};
  EXPECT_THAT(save(first, less), HasSubstr("tensor w: rows [3, 4) are in no file"));
  TensorSlice taller = second;
  taller.global_shape = {5, 2};
  EXPECT_THAT(save(first, taller), HasSubstr("tensor w: rank 1 has another shape"));
  EXPECT_EQ(save(first, second), "committed");
}

TEST_F(Writer, ANameGivenTwiceIsAnError_Bug32) {
  float data[2] = {};
  SaveRequest request = SampleRequest(root_, 7, kFence, 0, 1);
  request.model = {{"w", "F32", {2}, {0}, {2}, data}, {"w", "F32", {2}, {0}, {2}, data}};
  EXPECT_THAT(WriteShards(request).error().message, HasSubstr("\"w\" is given twice"));
  request.model.pop_back();
  request.optim = request.model;
  EXPECT_THAT(WriteShards(request).error().message, HasSubstr("\"w\" is given twice"));
}

TEST_F(Writer, AValidCheckpointOfTheSameStepIsKept) {
  ASSERT_TRUE(SaveSample(root_, 7, kFence, 2));
  const auto before = fs::last_write_time(root_ + "/step-00000007/manifest.json");
  const Result<CommitInfo> again = SaveSample(root_, 7, kFence, 3);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->kept_existing);
  EXPECT_EQ(fs::last_write_time(root_ + "/step-00000007/manifest.json"), before);
  EXPECT_TRUE(fs::is_empty(StagingDirectory(root_, kFence)));
}

TEST_F(Writer, ABadCheckpointOfTheSameStepIsReplaced) {
  ASSERT_TRUE(SaveSample(root_, 7, kFence, 2));
  fs::resize_file(root_ + "/step-00000007/" + ShardPath("optim", 1), 5000);
  const Result<CommitInfo> again = SaveSample(root_, 7, kFence, 3);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(again->kept_existing);
  EXPECT_THAT(again->replaced, HasSubstr("5000 bytes instead of"));
  EXPECT_EQ(LoadSample(root_ + "/step-00000007", 7, 2), "");
  EXPECT_TRUE(fs::is_empty(StagingDirectory(root_, kFence)));
}

TEST_F(Writer, SomethingElseInTheWayIsNotTouched) {
  std::ofstream(root_ + "/step-00000007") << "mine";
  EXPECT_THAT(SaveSample(root_, 7, kFence, 1).error().message, HasSubstr("in the way and is not a directory"));
  EXPECT_EQ(Text(root_ + "/step-00000007"), "mine");
}

TEST_F(Writer, AVolumeThatIsNotSharedIsNamed) {
  std::vector<std::string> reports;
  for (int rank = 0; rank < 2; ++rank) {
    const SampleShards shards(SmallModel(), rank, 2, 7);
    SaveRequest request = SampleRequest(root_, 7, kFence, rank, 2);
    request.model = shards.model;
    reports.push_back(WriteShards(request)->manifest);
  }
  fs::remove(StagingDirectory(root_, kFence) + "/step-00000007/" + ShardPath("model", 1));
  const Result<CommitInfo> info = Commit(SampleRequest(root_, 7, kFence, 0, 2), "{}", reports);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(info.error().message, HasSubstr("all pods must mount the same volume"));
}

TEST_F(Writer, StepsOfMoreThanEightDigits) {
  ASSERT_TRUE(SaveSample(root_, 123'456'789'012, kFence, 1));
  ASSERT_TRUE(SaveSample(root_, 99'999'999, kFence, 1));
  EXPECT_EQ(NewestValid(root_)->step, 123'456'789'012) << "by number, not by name";
}

TEST_F(Writer, OtherEntriesOfTheRootAreLeftAlone) {
  ASSERT_TRUE(SaveSample(root_, 7, kFence, 1));
  fs::create_directory(root_ + "/lost+found");
  fs::create_directory(root_ + "/step-9");
  std::ofstream(root_ + "/notes.txt") << "x";
  std::ofstream(root_ + "/step-00000008") << "a file";
  fs::create_directory_symlink(root_ + "/step-00000007", root_ + "/step-00000009");
  const Result<std::vector<CheckpointInfo>> list = List(root_);
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 3u);
  EXPECT_FALSE((*list)[0].valid);
  EXPECT_THAT((*list)[0].problem, HasSubstr("symbolic link"));
  EXPECT_THAT((*list)[1].problem, HasSubstr("not a directory"));
  EXPECT_TRUE((*list)[2].valid);
  EXPECT_EQ(NewestValid(root_)->step, 7);
}

TEST_F(Writer, AMissingRootIsNotFoundAndAnEmptyOneToo) {
  EXPECT_EQ(List(root_ + "/nowhere").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(List(root_ + "/nowhere").error().message, HasSubstr("does not exist"));
  EXPECT_EQ(NewestValid(root_).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(NewestValid(root_).error().message, HasSubstr("there is no checkpoint in"));
}

// Bytes of this process in memory.
int64_t Resident() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, pages = 0;
  in >> size >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// A save copies no shard in memory (29), and fifty of them leave nothing behind (28).
TEST_F(Writer, FiftySavesHoldNoMoreMemoryThanOne_Bug28_29) {
  constexpr int64_t kShard = 48 << 20;
  const std::vector<SampleTensor> model = {{"w", {kShard / 3 / 4096, 1024}}};  // three tensors of it
  SampleShards shards(model, 0, 1, 1);
  ASSERT_EQ(shards.bytes(), kShard);
  const auto save = [&](int64_t step) {
    SaveRequest request = SampleRequest(root_, step, kFence, 0, 1);
    request.model = shards.model;
    request.optim = shards.optim;
    const auto written = WriteShards(request);
    ASSERT_TRUE(written) << written.error().message;
    const auto committed = Commit(request, "{}", {written->manifest});
    ASSERT_TRUE(committed) << committed.error().message;
    ASSERT_TRUE(Prune(root_, Keep{.last = 1}));
  };
  const int64_t before = Resident();
  save(1);
  const int64_t after_one = Resident();
  EXPECT_LT(after_one - before, kShard / 4);
  for (int64_t step = 2; step <= 50; ++step) save(step);
  EXPECT_LT(Resident() - after_one, kShard / 24);
}

}  // namespace
}  // namespace trainyard::checkpoint
