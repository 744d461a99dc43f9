// A checkpoint that was whole once: every flipped bit, missing file and cut is found and named, and resuming goes on
// with the newest one that is right.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const Fence kFence{"uid", 1, 0};

void FlipBit(const fs::path& path, int64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(bit / 8);
  const char byte = static_cast<char>(file.get() ^ (1 << (bit % 8)));
  file.seekp(bit / 8);
  file.put(byte);
  ASSERT_TRUE(file.good());
}

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TakeOver(root_, kFence));
    ASSERT_TRUE(SaveSample(root_, 100, kFence, 2));
    ASSERT_TRUE(SaveSample(root_, 200, kFence, 3));
  }
  std::string FirstProblem() {
    const Result<VerifyReport> report = Verify(newest_);
    if (!report) return report.error().message;
    return report->ok() ? "" : report->problems[0].ToString();
  }
  std::vector<fs::path> Files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(newest_)) {
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), newest_));
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  TempDirectory temp_;
  const std::string root_ = temp_.path();
  const std::string newest_ = root_ + "/step-00000200";
};

TEST_F(Damage, AFlippedBitAnywhereIsFoundAndNamed) {
  ASSERT_EQ(FirstProblem(), "");
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  const std::vector<fs::path> files = Files();
  ASSERT_EQ(files.size(), 2 + 3 * 4u);
  for (int round = 0; round < 400; ++round) {
    const fs::path& file = files[static_cast<size_t>(round) % files.size()];
    const int64_t bit = static_cast<int64_t>(random() % (fs::file_size(fs::path(newest_) / file) * 8));
    SCOPED_TRACE(file.string() + " bit " + std::to_string(bit) + " seed " + std::to_string(seed));
    FlipBit(fs::path(newest_) / file, bit);
    const Result<VerifyReport> report = Verify(newest_);
    ASSERT_TRUE(report);
    ASSERT_FALSE(report->ok());
    const Problem& problem = report->problems[0];
    if (file.extension() == ".safetensors" || file.extension() == ".hashes") {
      fs::path shard = file;
      EXPECT_EQ(problem.file, shard.replace_extension(".safetensors").string());
      EXPECT_FALSE(problem.tensor.empty());
      EXPECT_EQ(problem.rank, std::stoi(file.filename().string().substr(6, 5)) - 1);
    } else {
      EXPECT_EQ(problem.file, file.string());
    }
    // Loading never returns wrong numbers: it fails, or the bit is in a header that loading does not need.
    const std::string loaded = LoadSample(newest_, 200, 1);
    if (loaded.empty()) {
      EXPECT_EQ(file.extension(), ".safetensors");
      EXPECT_THAT(problem.message, HasSubstr("header"));
    } else {
      EXPECT_THAT(loaded, HasSubstr(problem.file));
      if (!problem.tensor.empty()) {
        EXPECT_THAT(loaded, HasSubstr("tensor " + problem.tensor + " of rank"));
      }
    }
    FlipBit(fs::path(newest_) / file, bit);
  }
  EXPECT_EQ(FirstProblem(), "");
}

TEST_F(Damage, NewestValidSkipsTheBadOneAndSaysWhy_Bug24) {
  fs::remove(newest_ + "/" + ShardPath("optim", 2));
  const Result<CheckpointInfo> info = NewestValid(root_);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->step, 100);
  EXPECT_EQ(LoadSample(info->path, 100, 3), "");
  ASSERT_EQ(info->skipped.size(), 1u);
  EXPECT_THAT(
      info->skipped[0],
      testing::AllOf(HasSubstr("step-00000200"), HasSubstr("optim/shard-00003-model-00001-of-00001.safetensors"),
                     HasSubstr("tensor state.model.embed_tokens.weight.exp_avg of rank 2"), HasSubstr("missing")));
}

TEST_F(Damage, AFlippedBitInTensorDataIsFoundWhileLoadingThenTheOneBelowIsTaken) {
  const std::string file = newest_ + "/" + ShardPath("model", 1);
  FlipBit(file, static_cast<int64_t>(fs::file_size(file) - 1) * 8);
  ASSERT_EQ(NewestValid(root_)->step, 200) << "structure alone does not show it";
  EXPECT_THAT(LoadSample(newest_, 200, 2),
              testing::AllOf(HasSubstr("model/shard-00002"), HasSubstr("do not match their hash"),
                             HasSubstr("tensor model.norm.weight of rank 1")));
  EXPECT_EQ(NewestValid(root_, 200)->step, 100);
  const Result<CheckpointInfo> thorough = NewestValid(root_, std::numeric_limits<int64_t>::max(), Check::kEverything);
  ASSERT_TRUE(thorough);
  EXPECT_EQ(thorough->step, 100);
  EXPECT_THAT(thorough->skipped[0], HasSubstr("tensor model.norm.weight of rank 1"));
}

TEST_F(Damage, WithOnlyBadOnesTheErrorNamesThemAll) {
  fs::remove(newest_ + "/manifest.json");
  fs::resize_file(root_ + "/step-00000100/" + ShardPath("model", 0), 17);
  const Result<CheckpointInfo> info = NewestValid(root_);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(
      info.error().message,
      testing::AllOf(HasSubstr("step-00000200"),
                     HasSubstr("step-00000200 is bad: manifest.json: the file is missing, so this is not a whole"),
                     HasSubstr("step-00000100"), HasSubstr("17 bytes instead of")));
}

TEST_F(Damage, EveryMissingFileIsNamed) {
  for (const fs::path& file : Files()) {
    fs::rename(fs::path(newest_) / file, temp_.path() + "/aside");
    const std::string problem = FirstProblem();
    EXPECT_THAT(problem, HasSubstr("missing")) << file;
    fs::path named = file;
    if (named.extension() == ".hashes") {
      EXPECT_THAT(problem, HasSubstr(file.string()));
    }
    if (named.extension() == ".hashes") named.replace_extension(".safetensors");
    EXPECT_THAT(problem, testing::StartsWith(named.string() + ": ")) << file;
    EXPECT_NE(LoadSample(newest_, 200, 4), "") << file;
    EXPECT_EQ(NewestValid(root_)->step, 100) << file;
    fs::rename(temp_.path() + "/aside", fs::path(newest_) / file);
  }
  EXPECT_EQ(FirstProblem(), "");
}

TEST_F(Damage, CutAndGrownFilesAreNamed) {
  for (const fs::path& file : Files()) {
    const fs::path path = fs::path(newest_) / file;
    fs::copy_file(path, temp_.path() + "/aside");
    const int64_t size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t bytes : {int64_t{0}, size / 2, size - 2, size + 1}) {
      fs::resize_file(path, static_cast<uintmax_t>(bytes));
      EXPECT_NE(FirstProblem(), "") << file << " at " << bytes;
      EXPECT_EQ(NewestValid(root_)->step, 100) << file << " at " << bytes;
    }
    fs::rename(temp_.path() + "/aside", path);
  }
  EXPECT_EQ(FirstProblem(), "");
}

// A tree of 64 MB of such text takes gigabytes: its digest is looked at first.
TEST_F(Damage, ALargeManifestThatIsNotAsItWasWrittenIsNotParsed) {
  const std::string path = newest_ + "/manifest.json";
  std::string text;
  for (std::ifstream file(path); text.empty();) text.assign(std::istreambuf_iterator<char>(file), {});
  const size_t at = text.find("\"files\":");
  ASSERT_NE(at, std::string::npos);
  std::string junk = text.substr(0, at) + "\"a\":[";
  while (junk.size() < (size_t{64} << 20)) junk += "[],[],[],[],[],[],[],[],";
  junk += "0]," + text.substr(at);
  for (const std::string& large : {junk, std::string(size_t{64} << 20, '[')}) {
    std::ofstream(path, std::ios::trunc) << large;
    struct rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    EXPECT_THAT(FirstProblem(), HasSubstr("manifest.json: it is not what was written: its digest does not match"));
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 << 10) << "KiB";
  }
  // As large and as it was written: it is read.
  Result<Manifest> manifest = DecodeManifest(text);
  ASSERT_TRUE(manifest);
  const TensorInfo tensor = manifest->tensors[0];
  for (int i = 0; i < 80'000; ++i) {
    manifest->tensors.push_back({"empty." + std::to_string(i), tensor.group, tensor.dtype, {0, 7}});
  }
  const std::string written = EncodeManifest(*manifest);
  ASSERT_GT(written.size(), size_t{4} << 20);
  const Result<Manifest> read = DecodeManifest(written);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tensors.size(), manifest->tensors.size());
  EXPECT_EQ(DecodeManifest(written.substr(0, written.size() - 1) + " \n").error().code, ErrorCode::kDataLoss);
}

TEST_F(Damage, AFileOfAnotherCheckpointDoesNotPass) {
  const std::string file = ShardPath("model", 0), hashes = HashPath(file);
  // Both the shard and its hash file, so that they agree with each other.
  for (const std::string& path : {file, hashes}) {
    fs::copy_file(root_ + "/step-00000100/" + path, newest_ + "/" + path, fs::copy_options::overwrite_existing);
  }
  EXPECT_THAT(FirstProblem(), HasSubstr("does not match the digest in the manifest"));
  EXPECT_EQ(NewestValid(root_)->step, 100);
}

TEST_F(Damage, AStrangeShardFileIsReportedSincePyTorchWouldReadIt) {
  fs::copy_file(newest_ + "/" + ShardPath("model", 0), newest_ + "/" + ShardPath("model", 7));
  EXPECT_THAT(FirstProblem(),
              HasSubstr("model/shard-00008-model-00001-of-00001.safetensors: the file does not belong here"));
}

TEST_F(Damage, ARenamedStepDirectoryIsNotTakenForAnotherStep) {
  fs::rename(newest_, root_ + "/step-00000300");
  EXPECT_EQ(NewestValid(root_)->step, 100);
  EXPECT_THAT(NewestValid(root_)->skipped[0], HasSubstr("it is of step 200, unlike its directory"));
}

TEST_F(Damage, AllProblemsAreReportedNotOnlyTheFirst) {
  fs::remove(newest_ + "/" + ShardPath("model", 0));
  fs::remove(newest_ + "/" + ShardPath("optim", 1));
  fs::remove(newest_ + "/train_state.json");
  EXPECT_EQ(Verify(newest_)->problems.size(), 3u);
  EXPECT_THAT(NewestValid(root_)->skipped[0], HasSubstr("(and 2 more)"));
}

TEST_F(Damage, AnotherModelIsToldFromDamage) {
  Result<Reader> reader = Reader::Open(newest_);
  ASSERT_TRUE(reader);
  float data[4] = {};
  const auto read = [&](const TensorSlice& slice) { return reader->Read({slice}).error(); };
  EXPECT_EQ(read({"no.such", "F32", {2}, {0}, {2}, data}).code, ErrorCode::kFailedPrecondition);
  const Error shape = read({"model.norm.weight", "F32", {4}, {0}, {2}, data});
  EXPECT_EQ(shape.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(shape.message, HasSubstr("model.norm.weight is F32 [0:3] there, not F32 [0:4]"));
  EXPECT_EQ(read({"model.norm.weight", "BF16", {3}, {0}, {2}, data}).code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(read({"model.norm.weight", "F32", {3}, {2}, {2}, data}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Reader::Open(root_ + "/step-00000999").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace trainyard::checkpoint
