// From a published directory to a tuned one in one job, by the real launcher and trainer: what comes out, and what
// becomes of the place.
#include "tests/trainer/loop/job_fixture.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/foreign_tensors.h"
#include "trainer/checkpoint/merge.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::loop {
namespace {

using ::testing::HasSubstr;

class ExportOnSuccessTest : public JobTest {
 protected:
  // A published model: trained a little, exported, with a tokenizer.
  void SetUp() override {
    const nlohmann::json checkpoint = job_["checkpoint"];
    job_["model"]["family"] = "Qwen3";
    job_["model"]["headSize"] = 16;
    job_["training"]["steps"] = 20;
    job_["checkpoint"]["path"] = "base";
    job_["job"]["uid"] = "uid-0";
    base_loss_ = RunToEnd(1, 1).StatusFile()["validationLoss"].get<double>();
    auto reader = checkpoint::Reader::Open(dir_ / "volumes/checkpoints/base/step-00000020");
    ASSERT_TRUE(reader) << reader.error().message;
    std::filesystem::create_directories(dir_ / "volumes/models");
    const auto exported = checkpoint::ExportHuggingFace(*reader, source_, {.dtype = "BF16", .shard_bytes = 20000});
    ASSERT_TRUE(exported) << exported.error().message;
    WriteText(source_ + "/tokenizer.json", "{\"a\": 1}");
    job_["job"]["uid"] = "uid-1";
    job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "small"}}}};
    job_["training"]["steps"] = 8;
    job_["training"]["evaluation"]["everySteps"] = 8;
    job_["checkpoint"] = checkpoint;
    job_["checkpoint"]["exportOnSuccess"] = {{"volume", "models"}, {"path", "out/tuned"}};
  }

  double base_loss_ = 0;
  const std::string source_ = dir_ / "volumes/models/small", place_ = dir_ / "volumes/models/out/tuned";
};

TEST_F(ExportOnSuccessTest, TheTunedModelHasTheFilesOfTheOneItStartedFrom) {
  const Attempt run = RunToEnd(2, 1);
  EXPECT_EQ(run.StatusFile()["phase"], "Succeeded");
  EXPECT_GT(run.StatusFile()["restored"]["bytesRead"], 0) << run.StatusFile();
  // In BF16, so nearly.
  EXPECT_NEAR(run.StatusFile()["initialValidationLoss"].get<double>(), base_loss_, 0.01)
      << "it begins where that ended";
  for (const auto& entry : std::filesystem::directory_iterator(source_)) {
    const std::string name = entry.path().filename();
    ASSERT_TRUE(std::filesystem::exists(place_ + "/" + name)) << name;
    const bool same = Slurp(entry.path()) == Slurp(place_ + "/" + name);
    EXPECT_EQ(same, !name.ends_with(".safetensors")) << name << ": weights have been trained, nothing else";
    EXPECT_EQ(std::filesystem::file_size(entry.path()), std::filesystem::file_size(place_ + "/" + name)) << name;
  }
  const auto tensors = checkpoint::ForeignTensors::Open(place_, checkpoint::PosixFileSystem());
  ASSERT_TRUE(tensors) << tensors.error().message;
  for (const auto& [name, tensor] : tensors->all()) EXPECT_EQ(tensor.dtype, "BF16") << name;

  // The same job once more: it is there already.
  const auto written = std::filesystem::last_write_time(place_ + "/config.json");
  RunToEnd(1, 2);
  EXPECT_EQ(std::filesystem::last_write_time(place_ + "/config.json"), written);
  // It goes on: the export of the older step is replaced.
  job_["training"]["steps"] = 10;
  RunToEnd(1, 3);
  EXPECT_NE(std::filesystem::last_write_time(place_ + "/config.json"), written);
  EXPECT_EQ(nlohmann::json::parse(Slurp(place_ + "/trainyard_export.json"))["step"], 10);
  // A job that forks it carries the files on.
  job_["job"]["uid"] = "uid-2";
  job_["checkpoint"]["path"] = "fork";
  job_["checkpoint"]["resumeFrom"] = {{"volume", "checkpoints"}, {"path", "tiny"}, {"weightsOnly", true}};
  const Attempt refused = RunToEnd(1, 1, contract::kExitConfiguration);
  EXPECT_THAT(refused.process->Log(), HasSubstr("checkpoint.exportOnSuccess: " + place_ + " is not empty ("));
  EXPECT_TRUE(refused.Steps().empty()) << "not found out after training";
  job_["checkpoint"]["exportOnSuccess"]["path"] = "fork";
  RunToEnd(1, 2);
  EXPECT_EQ(Slurp(dir_ / "volumes/models/fork/tokenizer.json"), "{\"a\": 1}");
}

// The model that an adapter has made, merged from either form of it, is what was trained.
TEST_F(ExportOnSuccessTest, AnAdapterComesOutForPeftAndMergesIntoWhatWasTrained) {
  job_["model"]["adapter"] = {
      {"type", "LoRA"},        {"rank", 4}, {"alpha", 16}, {"dropout", 0.1}, {"targets", nlohmann::json::array()},
      {"quantizeBase", "None"}};
  job_["training"]["optimizer"]["learningRate"] = 0.02;
  job_["training"]["steps"] = 60;
  const nlohmann::json status = RunToEnd(2, 1).StatusFile();
  EXPECT_NEAR(status["initialValidationLoss"].get<double>(), base_loss_, 0.01) << "B is zero in the beginning";
  const double trained = status["validationLoss"].get<double>();
  EXPECT_LT(trained, base_loss_ - 0.01) << "a test of nothing";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(place_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("adapter_config.json", "adapter_model.safetensors",
                                                     "trainyard_export.json"));
  const std::string merged = dir_ / "volumes/models/merged", again = dir_ / "volumes/models/again";
  const auto info = checkpoint::MergeAdapter({source_, dir_ / "volumes/checkpoints/tiny", merged});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_TRUE(info->base_known);
  EXPECT_EQ(info->matrices, 14);
  ASSERT_TRUE(checkpoint::MergeAdapter({source_, place_, again}));
  for (const auto& entry : std::filesystem::directory_iterator(merged)) {
    EXPECT_EQ(Slurp(entry.path()), Slurp(again + "/" + entry.path().filename().string())) << entry.path();
  }
  job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "merged"}}}};
  job_["job"]["uid"] = "uid-2";
  job_["checkpoint"]["path"] = "merged";
  job_["checkpoint"].erase("exportOnSuccess");
  job_["training"]["steps"] = 1;
  job_["training"]["schedule"]["warmupSteps"] = 0;
  // The merged weights are in BF16.
  EXPECT_NEAR(RunToEnd(1, 1).StatusFile()["initialValidationLoss"].get<double>(), trained, 0.003);
}

}  // namespace
}  // namespace trainyard::loop
