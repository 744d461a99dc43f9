// Whole jobs whose optimizer state is in host memory or on disk: the same parameters in the end as without, through a
// kill -9 and a resume; nothing is left on the disk, and a disk that does not do ends the job with one line.
#include <signal.h>
#include <sys/mount.h>

#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OffloadJobTest : public JobTest {
 protected:
  OffloadJobTest() {
    std::filesystem::create_directories(Scratch());
    job_["training"]["steps"] = 20;
    job_["training"]["precision"] = "BF16";
    job_["training"]["determinism"] = "Layout";  // else products are rounded by where weights begin
  }
  std::string Scratch() const { return dir_ / "volumes/scratch"; }

  void Offload(const std::string& kind) {
    for (const char* key : {"offload", "offloadVolume"}) job_["parallelism"].erase(key);
    if (kind != "None") job_["parallelism"]["offload"] = kind;
    if (kind == "NVMe") job_["parallelism"]["offloadVolume"] = "scratch";
  }
  // A checkpoint path of its own, so that nothing is resumed.
  std::string HashOf(int world, const std::string& kind) {
    Offload(kind);
    job_["checkpoint"]["path"] = kind + std::to_string(runs_);
    return RunToEnd(world, 1).StatusFile()["parameterHash"];
  }
};

TEST_F(OffloadJobTest, EndsWithTheSameParameters) {
  for (const char* precision : {"BF16", "FP32"}) {
    for (const char* strategy : {"DDP", "FSDP"}) {
      for (const int world : {1, 2}) {
        SCOPED_TRACE(std::string(precision) + " " + strategy + " " + std::to_string(world));
        job_["training"]["precision"] = precision;
        job_["training"]["steps"] = 5;
        job_["parallelism"] = {{"strategy", strategy}};
        const std::string want = HashOf(world, "None");
        EXPECT_EQ(HashOf(world, "CPU"), want);
        EXPECT_EQ(HashOf(world, "NVMe"), want);
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(Scratch()));
}

TEST_F(OffloadJobTest, GoesOnFromACheckpointAfterKillMinusNine) {
  job_["training"]["steps"] = 400;
  job_["checkpoint"]["everySteps"] = 40;
  const std::string want = HashOf(2, "None");
  job_["checkpoint"]["path"] = "killed";
  Offload("NVMe");
  Attempt killed = Start(2, 1);
  const auto saved = [&] {
    const auto status = killed.StatusFile();
    return status.is_object() && status.contains("checkpoint") && status["checkpoint"].value("step", 0) >= 40;
  };
  ASSERT_TRUE(Await([&] { return saved() || !killed.process->Running(); }) && saved()) << killed.process->Log();
  const pid_t rank = killed.PidOf(1);
  ASSERT_GT(rank, 0);
  ASSERT_EQ(kill(rank, SIGKILL), 0);
  EXPECT_NE(killed.process->Wait(), contract::kExitSucceeded);
  EXPECT_TRUE(std::filesystem::is_empty(Scratch())) << "nothing is left of the killed rank's file";
  Attempt resumed = RunToEnd(2, 2);
  EXPECT_GE(resumed.StatusFile()["resumedFromStep"].get<int64_t>(), 40);
  EXPECT_EQ(resumed.StatusFile()["parameterHash"], want);
  EXPECT_THAT(resumed.process->Log(), HasSubstr("bytes in a file of " + Scratch()));
}

TEST_F(OffloadJobTest, AVolumeThatIsNotThereIsNamed) {
  std::filesystem::remove(Scratch());
  Offload("NVMe");
  Attempt run = RunToEnd(2, 1, contract::kExitStorage);
  const auto end = run.Termination();
  EXPECT_EQ(end["class"], "Storage");
  EXPECT_THAT(end["message"].get<std::string>(),
              AllOf(HasSubstr("offload of rank "), HasSubstr(Scratch() + ": cannot make a file there"),
                    HasSubstr("No such file or directory"), Not(HasSubstr("\n"))));
}

TEST_F(OffloadJobTest, ADiskThatIsFullEndsAllRanksAtTheStart) {
  // Room for the file of one rank and not of two: 12 bytes for each of half the parameters, in whole blocks.
  if (mount("trainyard-test", Scratch().c_str(), "tmpfs", 0, "size=400k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system: " << std::strerror(errno);
  }
  Offload("NVMe");
  Attempt run = RunToEnd(2, 1, contract::kExitStorage);
  const bool empty = std::filesystem::is_empty(Scratch());
  umount2(Scratch().c_str(), MNT_DETACH);
  EXPECT_TRUE(empty);
  const auto end = run.Termination();
  EXPECT_EQ(end["class"], "Storage");
  EXPECT_THAT(end["message"].get<std::string>(),
              AllOf(HasSubstr("offload of rank "), HasSubstr(Scratch() + ": cannot reserve "),
                    HasSubstr("bytes are free"), HasSubstr("No space left on device")));
  EXPECT_EQ(run.LastStep(), 0);
}

}  // namespace
}  // namespace trainyard::loop
